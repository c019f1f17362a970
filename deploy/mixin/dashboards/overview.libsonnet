// The fleet: how many nodes, why, and which. Recorded series only (rules.libsonnet): no panel
// reads a series for each node, except for the nodes that have a reason or an old relist.
local g = import 'grafana.libsonnet';

function(config)
  local lib = (import '../lib.libsonnet')(config);
  local cluster = config.clusterLabel;
  local fleet = '%s=~"$cluster", job=~"$job"' % cluster;
  local recorded(name, more='') = '%s{%s}' % [name, fleet + (if more == '' then '' else ', ' + more)];
  local q = g.query;
  local count(title, description, steps, expr, w=3) = g.stat(title, description, 'none', '0', 'value', steps, [q(expr)], w);
  local nodeLink = '/d/%s/?var-cluster=${__data.fields.%s}&var-job=${__data.fields.job}&var-node=${__data.fields.%s}' % [config.nodeUID, cluster, config.nodeLabel];

  g.dashboard(
    config.overviewUID,
    'plegd: fleet',
    'Nodes and their PLEG. Needs the recording rules of plegd. Made from deploy/mixin of plegd.',
    config.dashboardTags,
    'now-24h',
    '1m',
    [
      g.variable('cluster', 'Cluster', 'label_values(cluster:plegd_nodes:count, %s)' % cluster, true),
      g.variable('job', 'Job', 'label_values(cluster:plegd_nodes:count{%s=~"$cluster"}, job)' % cluster, true),
    ],
    [{
      name: 'faults of many nodes',
      datasource: g.source,
      enable: true,
      iconColor: 'red',
      expr: 'ALERTS{alertname="PLEGFleetCommonCause", alertstate="firing", %s}' % fleet,
      titleFormat: '{{alertname}}',
      textFormat: '{{%s}} {{reason}}' % cluster,
    }],
    [g.link('Reasons', lib.runbook('reasons/README'))],
    [
      g.row('Now'),
      count('Nodes', 'Nodes from which there are metrics.', g.steps('text'), 'sum(%s)' % recorded('cluster:plegd_nodes:count')),
      count('Unhealthy', 'Nodes on which the kubelet no longer manages pods, by its own rules.', g.steps('green', [[1, 'red']]), 'sum(%s)' % recorded('cluster:pleg_verdict:sum', 'state="unhealthy"')),
      count('NotReady (predicted)', 'Nodes that the API shows as NotReady, by the model of the kubelet\'s status update.', g.steps('green', [[1, 'red']]), 'sum(%s - %s)' % [recorded('cluster:plegd_nodes:count'), recorded('cluster:pleg_node_ready_predicted:sum')]),
      count('Degraded', 'Something is wrong, and the kubelet still manages pods.', g.steps('green', [[1, 'orange']]), 'sum(%s)' % recorded('cluster:pleg_verdict:sum', 'state="degraded"')),
      g.stat('Next NotReady in', 'Prediction for the nodes that are still Ready, if nothing changes.', 's', 'none predicted', 'value', g.steps('red', [[60, 'orange']]), [q('min(%s)' % recorded('cluster:pleg_not_ready_in_seconds:min'))], 4),
      g.stat('Oldest last seen', 'Age of the last successful relist of the node that is worst off.', 's', 'never', 'value', g.steps('green', [[30, 'orange'], [120, 'red']]), [q('max(%s)' % recorded('cluster:pleg_last_seen_age_seconds:max'))], 4),
      count('plegd down', 'Nodes whose plegd cannot be scraped.', g.steps('green', [[1, 'orange']]), 'sum(%s) or vector(0)' % recorded('cluster:plegd_down:count'), 2),
      count('Never seen', 'Nodes on which no relist has ever succeeded.', g.steps('green', [[1, 'orange']]), 'sum(%s) or vector(0)' % recorded('cluster:pleg_never_seen:count'), 2),

      g.row('Why'),
      g.stacked('Nodes by primary reason', 'Many at once: look for a common factor.', 'none', [q('sum by (reason) (%s) > 0' % recorded('cluster:pleg_primary_reason:sum'), '{{reason}}')], 12),
      g.stacked('Nodes by verdict', '', 'none', [q('sum by (state) (%s)' % recorded('cluster:pleg_verdict:sum'), '{{state}}')], 12),
      g.stacked('Nodes by kind of culprit', 'The last link of the wait chain.', 'none', [q('sum by (kind) (%s) > 0' % recorded('cluster:pleg_culprit:sum'), '{{kind}}')]),
      g.table(
        'Nodes with a reason',
        'Choose one for its own dashboard.',
        recorded('instance:pleg_primary_reason:active'),
        ['Time', 'Value', '__name__', 'pod', 'container', 'endpoint', 'namespace'],
        [g.link('Node', nodeLink), g.link('Runbook', lib.runbook('reasons/${__data.fields.reason}'))],
        16,
      ),

      g.row('Relists'),
      g.lines('The ten oldest last seen', 'Nodes whose last successful relist is older than %d s.' % config.oldAgeSeconds, 's', [q('topk(10, %s)' % recorded('instance:pleg_last_seen_age_seconds:old'), '{{%s}} {{instance}}' % config.nodeLabel)]),
      g.heatmap('Relists', '', 'sum by (le) (%s)' % recorded('cluster:pleg_relist_duration_seconds_bucket:rate5m')),
      g.lines('Relists, p99', '', 's', [q(recorded('cluster:pleg_relist_duration_seconds:p99_5m'), '{{%s}} {{job}}' % cluster)]),

      g.row('Calls to the runtimes'),
      g.lines('Calls a second', '', 'reqps', [q('sum by (operation_type) (%s)' % recorded('cluster:pleg_runtime_operations:rate5m'), '{{operation_type}}')]),
      g.lines('Failed calls a second', '', 'reqps', [q('sum by (operation_type) (%s)' % recorded('cluster:pleg_runtime_operations_errors:rate5m'), '{{operation_type}}')]),
      g.stacked('Containers', '', 'none', [q('sum by (container_state) (%s)' % recorded('cluster:pleg_running_containers:sum'), '{{container_state}}')]),
    ],
  )
