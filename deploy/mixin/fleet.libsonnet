// What broken nodes share. For each reason and each value of each grouping label: nodes with the
// reason, nodes in the group, share in the group and in the rest, and the lift between them.
// A node's labels are recorded with its fault: a node that moves on does not take its faults along.
{
  local config = $._config,
  local lib = (import 'lib.libsonnet')(config),
  local m = lib.metric,
  local job = lib.byJob,
  local instance = lib.byInstance,
  local node = '%s, %s' % [config.clusterLabel, config.nodeLabel],
  local rule = lib.rule,
  local active = 'instance:pleg_primary_reason:active',
  local kube = config.kubeNodeLabels,

  // labelled returns a count by the label from as series with the labels `label` and `value`.
  local labelled(label, from, count) =
    'sum without (%s) (label_replace(label_replace(\n  %s,\n  "value", "$1", "%s", "(.*)"), "label", "%s", "", ""))' % [from, count, from, label],
  // Each grouping label, and its name in the metrics.
  local groups = [{ label: l, from: l } for l in config.groupLabels] + [{ label: l, from: kube[l] } for l in std.objectFields(kube)],
  local union(count) = std.join('\nor\n', [labelled(g.label, g.from, count(g)) for g in groups]),
  local nodesOf(g) =
    if std.objectHas(kube, g.label)
    then 'count by (%s, %s) (%s * on (%s) group_left (%s) topk by (%s) (1, kube_node_labels{%s!=""}))' % [job, g.from, lib.threshold, node, g.from, node, g.from]
    else 'count by (%s, %s) (%s)' % [job, g.from, m('pleg_node_info', g.from + '!=""')],
  // A node that has had the reason under two values counts for both.
  local brokenOf(g) = 'count by (%(job)s, reason, %(l)s) (max by (%(instance)s, reason, %(l)s) (instance:pleg_fault:recent{%(l)s!=""}))' % { job: job, instance: instance, l: g.from },

  local vars = config.commonCause {
    job: job,
    instance: instance,
    active: active,
    b: 'cluster:plegd_group_reason:count',  // nodes of the group that have had the reason
    n: 'max_over_time(cluster:plegd_group_nodes:count[%s])' % config.commonCause.window,  // nodes of the group
    B: 'cluster:pleg_primary_reason:recent',  // nodes that have had the reason
    N: 'cluster:plegd_nodes:count',
    // One value for each reason, and for each group.
    perReason: 'on (%s, reason) group_left ()' % job,
    perGroup: 'on (%s, label, value) group_left ()' % job,
    info: std.join(', ', config.groupLabels),
    kube: std.join(', ', [kube[l] for l in std.objectFields(kube)]),
    node: node,
    nodeInfo: m('pleg_node_info'),
    labels: std.join(', ', [lib.byNode, 'reason'] + [g.from for g in groups]),
  },
  local cause = 'cluster:plegd_common_cause:ratio',

  prometheusRules+:: {
    groups+: [lib.group('plegd-fleet', [
      // Nodes that have the reason for a while, with the labels that they have had as long: a node
      // that has just moved on has its fault from before. topk: it has two series for a moment.
      rule('instance:pleg_fault:versions', |||
        (%(active)s and on (%(instance)s, reason) %(active)s offset %(hold)s)
          * on (%(instance)s) group_left (%(info)s) topk by (%(instance)s) (1, %(nodeInfo)s and %(nodeInfo)s offset %(hold)s)
      ||| % vars),
      rule('instance:pleg_fault:labels', if vars.kube == '' then 'instance:pleg_fault:versions' else |||
        instance:pleg_fault:versions * on (%(node)s) group_left (%(kube)s) topk by (%(node)s) (1, kube_node_labels)
          or on (%(instance)s) instance:pleg_fault:versions
      ||| % vars),
      rule('instance:pleg_fault:recent', 'max by (%(labels)s) (present_over_time(instance:pleg_fault:labels[%(window)s]))' % vars),
      rule('instance:pleg_primary_reason:since', |||
        instance:pleg_primary_reason:since and on (%(instance)s, reason) instance:pleg_fault:recent
          or on (%(instance)s, reason)
        max by (%(byNode)s, reason) (instance:pleg_fault:recent) * 0 + time()
      ||| % (vars { byNode: lib.byNode })),
      rule(vars.B, 'count by (%(job)s, reason) (max by (%(instance)s, reason) (instance:pleg_fault:recent))' % vars),
      rule('cluster:plegd_group_nodes:count', union(nodesOf)),
      rule(vars.b, union(brokenOf)),
      rule('cluster:plegd_group_share:ratio', '%(b)s / %(perGroup)s %(n)s' % vars),
      // Half a node more on both sides: a rest without nodes has no share of its own.
      rule('cluster:plegd_group_rest_share:ratio', |||
        (%(B)s - on (%(job)s, reason) group_right () %(b)s + 0.5)
          / %(perGroup)s
        (clamp_min(%(N)s - on (%(job)s) group_right () %(n)s, 0) + 0.5)
      ||| % vars),
      rule('cluster:plegd_group_lift:ratio', 'cluster:plegd_group_share:ratio / cluster:plegd_group_rest_share:ratio'),
      // How unlikely it is by chance that so many of the broken nodes are in the group: -ln of
      // Chernoff's bound for the binomial distribution.
      rule('cluster:plegd_group_evidence:nats', |||
        %(b)s * ln((%(b)s / %(perReason)s %(B)s) / %(perGroup)s (%(n)s / on (%(job)s) group_left () %(N)s))
          + (%(B)s - on (%(job)s, reason) group_right () %(b)s) * ln(
            clamp_min(1 - %(b)s / %(perReason)s %(B)s, 0.0001)
              / %(perGroup)s clamp_min(1 - %(n)s / on (%(job)s) group_left () %(N)s, 0.0001)
          )
      ||| % vars),
      // The group that explains a reason: its value is the part of the broken nodes that are in it.
      rule(cause, |||
        %(b)s / %(perReason)s %(B)s and topk by (%(job)s, reason) (1,
          cluster:plegd_group_evidence:nats >= %(evidence)s
            and %(b)s >= %(nodes)s
            and cluster:plegd_group_share:ratio >= %(share)s
            and cluster:plegd_group_lift:ratio >= %(lift)s
            and sum by (%(job)s, reason, label, value) (%(b)s) / on (%(job)s, reason, label) group_left () sum by (%(job)s, reason, label) (%(b)s) >= %(explained)s
        )
      ||| % vars),
      // Nodes whose alerts are left to another one, and why.
      rule('instance:plegd_inhibited:active', '%(active)s and on (%(job)s, reason) ALERTS{alertname="PLEGFleetFault", alertstate="firing"}' % vars, { why: 'one of many nodes' }),
      rule('instance:plegd_inhibited:active', 'max by (%s) (%s and on (%s) kube_node_spec_unschedulable == 1)' % [lib.byNode, lib.threshold, node], { why: 'cordoned' }),
    ])],
  },

  prometheusAlerts+:: {
    groups+: [lib.group('plegd-common-cause', [
      lib.alert(
        'PLEGFleetFault',
        |||
          %(B)s and on (%(job)s, reason) %(cause)s
            or %(B)s >= %(nodes)s and on (%(job)s, reason) %(B)s / on (%(job)s) group_left () %(N)s >= %(massShare)s
        ||| % (vars { cause: cause }),
        '{{ $value | printf "%.0f" }} nodes have had {{ $labels.reason }} within ' + vars.window
        + lib.with(lib.of(cause, ['reason']), '; {{ . | first | value | humanizePercentage }} of them {{ . | first | label "label" }}={{ . | first | label "value" }}'),
        lib.with(lib.of('cluster:pleg_primary_reason:sum', ['reason']), '{{ . | first | value | printf "%.0f" }} of them have it now: stop the rollout of what they share, or check what all of them use.', '%s > 0', 'None of them has it now.')
        + ' The dashboard "What do they share?" has all groups. It is a correlation, not a proof.',
        lib.runbook('fleets'),
      ),
      // No message: Alertmanager inhibits with it the other alerts of the same node.
      lib.alert(
        'PLEGNodeInhibited',
        'instance:plegd_inhibited:active\n',
        lib.node + ': {{ $labels.why }}',
        lib.node + ' is {{ $labels.why }}. For inhibition only.',
        lib.runbook('fleets'),
      ),
    ])],
  },
}
