// What do broken nodes share? Recorded series only.
local g = import 'grafana.libsonnet';

function(config)
  local lib = (import '../lib.libsonnet')(config);
  local cluster = config.clusterLabel;
  local fleet = '%s=~"$cluster", job=~"$job"' % cluster;
  local recorded(name, more='') = '%s{%s}' % [name, fleet + (if more == '' then '' else ', ' + more)];
  local q = g.query;
  local hidden = ['Time', '__name__', 'job'];

  g.dashboard(
    config.fleetUID,
    'plegd: what do they share?',
    'Broken nodes and the groups that they are in. Needs the recording rules of plegd.',
    config.dashboardTags,
    'now-3h',
    '1m',
    [
      g.variable('cluster', 'Cluster', 'label_values(cluster:plegd_nodes:count, %s)' % cluster, true),
      g.variable('job', 'Job', 'label_values(cluster:plegd_nodes:count{%s=~"$cluster"}, job)' % cluster, true),
    ],
    [{
      name: 'common causes',
      datasource: g.source,
      enable: true,
      iconColor: 'red',
      expr: 'ALERTS{alertname="PLEGFleetCommonCause", alertstate="firing", %s}' % fleet,
      titleFormat: '{{reason}}',
      textFormat: '{{label}}={{value}}',
    }],
    [g.link('Fleet', '/d/' + config.overviewUID), g.link('How to read it', lib.runbook('fleets'))],
    [
      g.row('Which reasons'),
      g.stacked('Nodes by primary reason', '', 'none', [q('sum by (reason) (%s)' % recorded('cluster:pleg_primary_reason:sum'), '{{reason}}')], 24),
      g.row('Common factors'),
      g.table('Groups by lift', 'How much more often the group has the reason than the rest of the nodes. Groups with the same nodes have the same lift.', 'topk(20, %s and %s >= %d)' % [recorded('cluster:plegd_group_lift:ratio'), recorded('cluster:plegd_group_reason:count'), config.commonCause.nodes], hidden, [], 12),
      g.table('First nodes', 'Since when the first nodes have each reason.', 'bottomk by (reason) (3, %s) * 1000' % recorded('instance:pleg_primary_reason:since'), hidden, [], 12),
      g.table('Culprits that nodes share', '', 'topk(20, %s)' % recorded('cluster:pleg_culprit_id:count'), hidden, [], 12),
      g.lines('Nodes of each group with the reason', '', 'none', [q('topk(10, %s)' % recorded('cluster:plegd_group_reason:count'), '{{reason}}: {{label}}={{value}}')], 12),
      g.row('Rollout'),
      g.lines('Broken nodes', '', 'none', [q('sum by (reason) (%s)' % recorded('cluster:pleg_primary_reason:recent'), '{{reason}}')], 24),
      g.stacked('Nodes by runtime version', 'A rollout is a step here.', 'none', [q('sum by (value) (%s)' % recorded('cluster:plegd_group_nodes:count', 'label="runtime_version"'), '{{value}}')], 12),
      g.stacked('Nodes by kernel version', '', 'none', [q('sum by (value) (%s)' % recorded('cluster:plegd_group_nodes:count', 'label="kernel_version"'), '{{value}}')], 12),
    ],
  )
