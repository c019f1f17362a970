// Three dashboards: the fleet and what its broken nodes share, which read recorded series only,
// so that they open at thousands of nodes; and one node.
local g = import 'grafana.libsonnet';
local q = g.query;

{
  local config = $._config,
  local lib = (import 'lib.libsonnet')(config),
  local cluster = config.clusterLabel,
  local fleet = '%s=~"$cluster", job=~"$job"' % cluster,
  // variables choose a cluster and a job; all is a series with both labels.
  local variables(all) = [
    g.variable('cluster', 'label_values(%s, %s)' % [all, cluster]),
    g.variable('job', 'label_values(%s{%s=~"$cluster"}, job)' % [all, cluster]),
  ],

  // Recorded series of the clusters that are chosen.
  local r(name, more='') = '%s{%s}' % [name, fleet + (if more == '' then '' else ', ' + more)],
  // by sums a recorded series by a label, with a line for each of its values.
  local by(label, name, more='') = q('sum by (%s) (%s)' % [label, r(name, more)], '{{%s}}' % label),
  local hidden = ['Time', '__name__', 'job'],
  local recorded = variables('cluster:plegd_nodes:count'),
  local fleetLink = g.link('Fleet', '/d/' + config.overviewUID),
  local shareLink = g.link('What do they share?', '/d/' + config.fleetUID),
  local reasonsLink = g.link('Reasons', lib.runbook('reasons/README')),
  local commonCause = g.annotation('alertname="PLEGFleetFault", ' + fleet, '{{reason}}', 'many nodes'),

  grafanaDashboards+:: {
    'plegd-overview.json': g.dashboard(config.overviewUID, 'plegd: fleet', 'Nodes and their PLEG. Needs the recording rules of plegd.', config.dashboardTags, '24h', '1m', commonCause, [shareLink, reasonsLink], recorded, [
      g.row('Now'),
      g.stat('Nodes', q('sum(%s)' % r('cluster:plegd_nodes:count')), ['text'], description='Nodes from which there are metrics.'),
      g.stat('Unhealthy', q('sum(%s)' % r('cluster:pleg_verdict:sum', 'state="unhealthy"')), ['green', [1, 'red']], description='Nodes on which the kubelet no longer manages pods, by its own rules.'),
      g.stat('NotReady (predicted)', q('sum(%s - %s)' % [r('cluster:plegd_nodes:count'), r('cluster:pleg_node_ready_predicted:sum')]), ['green', [1, 'red']], description='Nodes that the API shows as NotReady, by the model of the kubelet\'s status update.'),
      g.stat('Degraded', q('sum(%s)' % r('cluster:pleg_verdict:sum', 'state="degraded"')), ['green', [1, 'orange']], description='Something is wrong, and the kubelet still manages pods.'),
      g.stat('Next NotReady in', q('min(%s)' % r('cluster:pleg_not_ready_in_seconds:min')), ['red', [60, 'orange']], 'none predicted', 's', description='Prediction for the nodes that are still Ready, if nothing changes.', w=4),
      g.stat('Oldest last seen', q('max(%s)' % r('cluster:pleg_last_seen_age_seconds:max')), ['green', [30, 'orange'], [120, 'red']], 'never', 's', description='Age of the last successful relist of the node that is worst off.', w=4),
      g.stat('plegd down', q('sum(%s) or vector(0)' % r('cluster:plegd_down:count')), ['green', [1, 'orange']], description='Nodes whose plegd cannot be scraped.', w=2),
      g.stat('Never seen', q('sum(%s) or vector(0)' % r('cluster:pleg_never_seen:count')), ['green', [1, 'orange']], description='Nodes on which no relist has ever succeeded.', w=2),

      g.row('Why'),
      g.lines('Nodes by primary reason', [by('reason', 'cluster:pleg_primary_reason:sum')], description='Many at once: look for a common factor.', w=12, custom=g.stacked),
      g.lines('Nodes by verdict', [by('state', 'cluster:pleg_verdict:sum')], w=12, custom=g.stacked),
      g.table('Nodes with a reason', r('instance:pleg_primary_reason:active'), ['Time', 'Value', '__name__', 'pod', 'container', 'endpoint', 'namespace'], 'Choose one for its own dashboard.', 24, [
        g.link('Node', '/d/%s/?var-cluster=${__data.fields.%s}&var-job=${__data.fields.job}&var-node=${__data.fields.%s}' % [config.nodeUID, cluster, config.nodeLabel]),
        g.link('Runbook', lib.runbook('reasons/${__data.fields.reason}')),
      ]),

      g.row('Relists and calls'),
      g.lines('The ten oldest last seen', [q('topk(10, %s)' % r('instance:pleg_last_seen_age_seconds:old'), '{{%s}} {{instance}}' % config.nodeLabel)], 's', 'Nodes whose last successful relist is older than %d s.' % config.oldAgeSeconds, 12),
      g.heatmap('Relists', 'sum by (le) (%s) or sum(%s)' % [r('cluster:pleg_relist_duration_seconds_bucket:rate5m'), r('cluster:pleg_relist_duration_seconds:rate5m')], w=12),
      g.lines('Calls a second', [by('operation_type', 'cluster:pleg_runtime_operations:rate5m')], 'reqps'),
      g.lines('Failed calls a second', [by('operation_type', 'cluster:pleg_runtime_operations_errors:rate5m')], 'reqps'),
      g.lines('Containers', [by('container_state', 'cluster:pleg_running_containers:sum')], custom=g.stacked),
    ]),

    'plegd-fleet.json': g.dashboard(config.fleetUID, 'plegd: what do they share?', 'Broken nodes and the groups that they are in. Needs the recording rules of plegd.', config.dashboardTags, '3h', '1m', commonCause, [fleetLink, g.link('How to read it', lib.runbook('fleets'))], recorded, [
      g.row('Which reasons'),
      g.lines('Nodes by primary reason', [by('reason', 'cluster:pleg_primary_reason:sum')], w=24, custom=g.stacked),
      g.row('Rollout'),
      g.lines('Nodes by runtime version', [by('value', 'cluster:plegd_group_nodes:count', 'label="runtime_version"')], description='A rollout is a step here. Logarithmic: a few nodes are visible beside thousands.', w=12, custom=g.logarithmic),
      g.lines('Nodes by kernel version', [by('value', 'cluster:plegd_group_nodes:count', 'label="kernel_version"')], w=12, custom=g.logarithmic),
      g.row('Common factors'),
      g.table('Groups by lift', 'topk(20, %s and %s >= %d)' % [r('cluster:plegd_group_lift:ratio'), r('cluster:plegd_group_reason:count'), config.commonCause.nodes], hidden, 'How much more often the group has the reason than the rest of the nodes. Groups with the same nodes have the same lift.'),
      g.table('First nodes', 'bottomk by (reason) (3, %s) * 1000' % r('instance:pleg_primary_reason:since'), hidden, 'Since when the first nodes have each reason.'),
      g.table('Culprits that nodes share', 'topk(20, %s)' % r('cluster:pleg_culprit_id:count'), hidden),
      g.lines('Nodes of each group with the reason', [q('topk(10, %s)' % r('cluster:plegd_group_reason:count'), '{{reason}}: {{label}}={{value}}')], w=12),
    ]),

    'plegd-node.json':
      local one = '%s, %s="$node"' % [fleet, config.nodeLabel];
      local m(name, range='') = lib.metric(name, one, range);
      local rate(name) = 'rate(%s)' % m(name, range='$__rate_interval');
      // each is a rate by a label, with a line for each of its values.
      local each(label, name) = q('sum by (%s) (%s)' % [label, rate(name)], '{{%s}}' % label);
      local alerts = g.annotation('alertname=~"PLEG.*|Plegd.*", severity!="none", ' + one, '{{alertname}}', '{{reason}}');
      g.dashboard(config.nodeUID, 'plegd: node', 'One node and its PLEG.', config.dashboardTags, '1h', '15s', alerts, [fleetLink, reasonsLink], variables(lib.metric('pleg_threshold_seconds')) + [
        g.variable('node', 'label_values(%s, %s)' % [lib.metric('pleg_threshold_seconds', fleet), config.nodeLabel], many=false),
      ], [
        g.row('Verdict'),
        g.stat('Verdict', q(m('pleg_verdict') + ' == 1', '{{state}}'), ['text'], 'no data', '', 'name', w=4),
        g.stat('Primary reason', q(m('pleg_primary_reason'), '{{reason}}'), ['orange'], 'none', '', 'name', 'plegd reasons ID prints the steps.', 5),
        g.stat('Culprit', q(m('pleg_culprit'), '{{kind}} {{id}}'), ['orange'], 'none', '', 'name', 'The last link of the wait chain.'),
        g.stat('NotReady in (prediction)', q(m('pleg_not_ready_in_seconds')), ['red', [60, 'orange']], 'not predicted', 's', description='Earliest time until the API shows it, if nothing changes.', w=4),
        g.stat('Last seen', q(m('pleg_last_seen_age_seconds')), ['green', [30, 'orange'], [120, 'red']], 'never', 's', description='Age of the last successful relist.'),
        g.stat('Runtime', q(m('pleg_node_info'), '{{runtime_name}} {{runtime_version}}'), ['text'], 'no answer yet', '', 'name', w=5),
        g.timeline('Verdict timeline', q(m('pleg_verdict'), '{{state}}'), 'yes'),
        g.timeline('Reasons', q('max by (reason) (%s)' % m('pleg_reason'), '{{reason}}'), 'active', description='Every reason while it was active.'),
        g.lines('Last seen and countdowns', [
          q(m('pleg_last_seen_age_seconds'), 'last seen'),
          q(m('pleg_threshold_seconds'), 'threshold'),
          q(m('pleg_rules_fail_in_seconds'), 'rules fail in'),
          q(m('pleg_not_ready_in_seconds'), 'NotReady in'),
        ], 's', 'The kubelet stops managing pods when its rules fail; the API shows NotReady later. Both countdowns are predictions.', 12),
        g.lines('Relist under way', [q(m('pleg_relist_inflight_seconds'), '{{phase}}')], 's', 'Grows while a call does not return.', 12),

        g.row('Relists and calls'),
        g.heatmap('Relists', 'sum by (le) (%s) or sum(%s)' % [rate('pleg_relist_duration_seconds_bucket'), rate('pleg_relist_duration_seconds')], 'How long relists took. One that hangs is not in here until it ends.', 24),
        g.lines('Calls a second', [each('operation_type', 'pleg_runtime_operations_total')], 'reqps'),
        g.lines('Calls, mean', [q('%s / %s' % [rate('pleg_runtime_operations_duration_seconds_sum'), rate('pleg_runtime_operations_duration_seconds_count')], '{{operation_type}}')], 's'),
        g.lines('Failed calls a second', [each('operation_type', 'pleg_runtime_operations_errors_total')], 'reqps'),

        g.row('The runtime\'s socket and process'),
        g.lines('Accept queue', [
          q(m('pleg_socket_accept_queue_length'), 'length'),
          q(m('pleg_socket_accept_queue_limit'), 'limit'),
          q('sum by (cause) (increase(%s))' % m('pleg_socket_accept_failures_total', '$__rate_interval'), 'failures: {{cause}}'),
        ], description='Connections that the runtime has yet to accept. The queue holds one more than the limit.'),
        g.lines('File descriptors of the runtime', [q(m('pleg_runtime_process_open_fds'), 'open'), q(m('pleg_runtime_process_max_fds'), 'limit')], description='At the limit it accepts no connection, and logs nothing.'),
        g.lines('Fresh dial, mean', [q('%s / %s' % [rate('pleg_socket_probe_duration_seconds_sum'), rate('pleg_socket_probe_duration_seconds_count')], 'mean')], 's', 'A new connection to the runtime\'s socket, until its HTTP/2 SETTINGS.'),
        g.lines('Size of the lists', [q(m('pleg_runtime_response_bytes'), '{{operation_type}}'), q(m('pleg_runtime_response_limit_bytes'), 'limit')], 'bytes', 'Above the limit every relist fails.'),
        g.lines('Containers', [q(m('pleg_running_containers'), '{{container_state}}'), q(m('pleg_running_pods'), 'pods')]),
        g.lines('Pod lifecycle events a second', [each('type', 'pleg_events_total'), q(rate('pleg_discard_events_total'), 'dropped')]),
        g.timeline('Evidence', q(m('pleg_evidence_up'), '{{source}}'), 'answers', 'does not', 'Which sources answer.'),
      ]),
  },
}
