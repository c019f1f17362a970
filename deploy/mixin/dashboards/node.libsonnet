// One node.
local g = import 'grafana.libsonnet';

function(config)
  local lib = (import '../lib.libsonnet')(config);
  local cluster = config.clusterLabel;
  local fleet = '%s=~"$cluster", job=~"$job"' % cluster;
  local one = '%s, %s="$node"' % [fleet, config.nodeLabel];
  local m(name, more='', range='') = lib.metric(name, one + (if more == '' then '' else ', ' + more), range);
  local rate(name) = 'rate(%s)' % m(name, range='$__rate_interval');
  local mean(name, by='') =
    local sum = if by == '' then 'sum' else 'sum by (%s)' % by;
    '%s (%s) / %s (%s)' % [sum, rate(name + '_sum'), sum, rate(name + '_count')];
  local p99(name, by='') = 'histogram_quantile(0.99, sum by (%sle) (%s))' % [if by == '' then '' else by + ', ', rate(name)];
  local q = g.query;

  g.dashboard(
    config.nodeUID,
    'plegd: node',
    'One node and its PLEG. Made from deploy/mixin of plegd.',
    config.dashboardTags,
    'now-1h',
    '15s',
    [
      g.variable('cluster', 'Cluster', 'label_values(%s, %s)' % [lib.metric('pleg_threshold_seconds'), cluster], true),
      g.variable('job', 'Job', 'label_values(%s, job)' % lib.metric('pleg_threshold_seconds', '%s=~"$cluster"' % cluster), true),
      g.variable('node', 'Node', 'label_values(%s, %s)' % [lib.metric('pleg_threshold_seconds', fleet), config.nodeLabel], false),
    ],
    [{
      name: 'alerts',
      datasource: g.source,
      enable: true,
      iconColor: 'red',
      expr: 'ALERTS{alertname=~"PLEG.*|Plegd.*", alertstate="firing", severity!="none", %s}' % one,
      titleFormat: '{{alertname}}',
      textFormat: '{{reason}}',
    }],
    [g.link('Fleet', '/d/' + config.overviewUID), g.link('Reasons', lib.runbook('reasons/README'))],
    [
      g.row('Verdict'),
      g.stat('Verdict', '', '', 'no data', 'name', g.steps('text'), [q(m('pleg_verdict') + ' == 1', '{{state}}')], 4),
      g.stat('Primary reason', 'plegd reasons ID prints the steps.', '', 'none', 'name', g.steps('orange'), [q(m('pleg_primary_reason'), '{{reason}}')], 5),
      g.stat('Culprit', 'The last link of the wait chain.', '', 'none', 'name', g.steps('orange'), [q(m('pleg_culprit'), '{{kind}} {{id}}')], 3),
      g.stat('NotReady in (prediction)', 'Earliest time until the API shows it, if nothing changes.', 's', 'not predicted', 'value', g.steps('red', [[60, 'orange']]), [q(m('pleg_not_ready_in_seconds'))], 4),
      g.stat('Last seen', 'Age of the last successful relist.', 's', 'never', 'value', g.steps('green', [[30, 'orange'], [120, 'red']]), [q(m('pleg_last_seen_age_seconds'))], 3),
      g.stat('Runtime', '', '', 'no answer yet', 'name', g.steps('text'), [q(m('pleg_node_info'), '{{runtime_name}} {{runtime_version}}')], 5),
      g.timeline('Verdict timeline', '', 'yes', '', [q(m('pleg_verdict'), '{{state}}')]),
      g.timeline('Reasons', 'Every reason while it was active.', 'active', '', [q('max by (reason) (%s)' % m('pleg_reason'), '{{reason}}')]),
      g.lines('Last seen and countdowns', 'The kubelet stops managing pods when its rules fail; the API shows NotReady later. Both countdowns are predictions.', 's', [
        q(m('pleg_last_seen_age_seconds'), 'last seen'),
        q(m('pleg_threshold_seconds'), 'threshold'),
        q(m('pleg_rules_fail_in_seconds'), 'rules fail in'),
        q(m('pleg_not_ready_in_seconds'), 'NotReady in'),
      ], 12),
      g.lines('Relist under way', 'Grows while a call does not return.', 's', [q(m('pleg_relist_inflight_seconds'), '{{phase}}')], 12),

      g.row('Relists and calls'),
      g.heatmap('Relists', 'How long relists took. One that hangs is not in here until it ends.', 'sum by (le) (%s)' % rate('pleg_relist_duration_seconds_bucket'), 12),
      g.lines('Relist p99', '', 's', [q(p99('pleg_relist_duration_seconds_bucket'), 'p99')], 12),
      g.lines('Calls a second', '', 'reqps', [q('sum by (operation_type) (%s)' % rate('pleg_runtime_operations_total'), '{{operation_type}}')]),
      g.lines('Calls, mean', '', 's', [q(mean('pleg_runtime_operations_duration_seconds', 'operation_type'), '{{operation_type}}')]),
      g.lines('Failed calls a second', '', 'reqps', [q('sum by (operation_type) (%s)' % rate('pleg_runtime_operations_errors_total'), '{{operation_type}}')]),

      g.row('The runtime\'s socket and process'),
      g.lines('Accept queue', 'Connections that the runtime has yet to accept. The queue holds one more than the limit.', 'none', [
        q(m('pleg_socket_accept_queue_length'), 'length'),
        q(m('pleg_socket_accept_queue_limit'), 'limit'),
        q('sum by (cause) (increase(%s))' % m('pleg_socket_accept_failures_total', range='$__rate_interval'), 'failures: {{cause}}'),
      ]),
      g.lines('File descriptors of the runtime', 'At the limit it accepts no connection, and logs nothing.', 'none', [
        q(m('pleg_runtime_process_open_fds'), 'open'),
        q(m('pleg_runtime_process_max_fds'), 'limit'),
      ]),
      g.lines('Fresh dial, mean', 'A new connection to the runtime\'s socket, until its HTTP/2 SETTINGS.', 's', [q(mean('pleg_socket_probe_duration_seconds'), 'mean')], 12),
      g.lines('Size of the lists', 'Above the limit every relist fails.', 'bytes', [
        q(m('pleg_runtime_response_bytes'), '{{operation_type}}'),
        q(m('pleg_runtime_response_limit_bytes'), 'limit'),
      ]),
      g.lines('Containers', '', 'none', [
        q(m('pleg_running_containers'), '{{container_state}}'),
        q(m('pleg_running_pods'), 'pods'),
      ]),

      g.row('plegd'),
      g.timeline('Evidence', 'Which sources answer.', 'answers', 'does not', [q(m('pleg_evidence_up'), '{{source}}')]),
      g.lines('Pod lifecycle events a second', '', 'none', [
        q('sum by (type) (%s)' % rate('pleg_events_total'), '{{type}}'),
        q(rate('pleg_discard_events_total'), 'dropped'),
      ], 12, 7),
    ],
  )
