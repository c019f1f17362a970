// What broken nodes share. For each reason and each value of each grouping label: nodes with the
// reason, nodes in the group, share in the group and in the rest, and the lift between them.
{
  local config = $._config,
  local lib = (import 'lib.libsonnet')(config),
  local m = lib.metric,
  local job = lib.byJob,
  local instance = lib.byInstance,
  local rule = lib.rule,
  local recent = 'instance:pleg_primary_reason:recent',
  local total = 'cluster:pleg_primary_reason:recent',
  local group = 'cluster:plegd_group_%s',

  // labelled returns a count by the label from as series with the labels `label` and `value`.
  local labelled(label, from, count) =
    'sum without (%s) (label_replace(label_replace(\n  %s,\n  "value", "$1", "%s", "(.*)"), "label", "%s", "", ""))' % [from, count, from, label],
  // join gives a node's series the label from. topk: a node whose label has just changed has two
  // series for a moment.
  local join(by, from, series) = 'on (%s) group_left (%s) topk by (%s) (1, %s)' % [by, from, by, series],
  // union is a count by each grouping label of pleg_node_info and, joined by the node's name,
  // of kube_node_labels. With reason: of the nodes with a reason.
  local union(reason) = std.join('\nor\n', [
    labelled(l, l, if reason
    then 'count by (%s, reason, %s) (%s * %s)' % [job, l, recent, join(instance, l, '%s and on (%s) %s' % [m('pleg_node_info', l + '!=""'), instance, recent])]
    else 'count by (%s, %s) (%s)' % [job, l, m('pleg_node_info', l + '!=""')])
    for l in config.groupLabels
  ] + [
    local from = config.kubeNodeLabels[l];
    local node = join('%s, %s' % [config.clusterLabel, config.nodeLabel], from, 'kube_node_labels{%s!=""}' % from);
    labelled(l, from, if reason
    then 'count by (%s, reason, %s) (%s * %s)' % [job, from, recent, node]
    else 'count by (%s, %s) (%s * %s)' % [job, from, m('pleg_threshold_seconds'), node])
    for l in std.objectFields(config.kubeNodeLabels)
  ]),

  local vars = config.commonCause {
    job: job,
    b: group % 'reason:count',  // nodes of the group with the reason
    n: group % 'nodes:count',  // nodes of the group
    B: total,  // nodes with the reason
    N: 'cluster:plegd_nodes:count',
    // One value for each reason, and for each group.
    perReason: 'on (%s, reason) group_left ()' % job,
    explaining: 'on (%s, reason, label) group_left () sum by (%s, reason, label) (cluster:plegd_group_reason:count)' % [job, job],
    perGroup: 'on (%s, label, value) group_left ()' % job,
    recent: recent,
    active: 'instance:pleg_primary_reason:active',
    instance: instance,
    node: config.nodeLabel,
    severe: m('pleg_reason', 'severity=~"critical|warning"'),
  },
  // Series of the alert's reason and group, for its message. Its sums are over one series: those
  // of two rules may be of different evaluations.
  local brokenHere = lib.of(vars.b, ['reason', 'label', 'value']),
  local broken = lib.sum(lib.of(vars.b, ['reason', 'label'])),
  local here = lib.of(vars.n, ['label', 'value']),
  local all = lib.sum(lib.of(vars.n, ['label'])),

  prometheusRules+:: {
    groups+: [lib.group('plegd-fleet', [
      // Nodes that had the reason for a while within the window, and since when.
      rule('instance:pleg_primary_reason:sustained', |||
        max by (%(instance)s, %(node)s, reason) (
          %(active)s
            and on (%(instance)s, reason) %(active)s offset %(hold)s
            and on (%(instance)s, reason) %(severe)s
        )
      ||| % vars),
      rule(recent, 'present_over_time(instance:pleg_primary_reason:sustained[%(window)s])' % vars),
      rule('instance:pleg_primary_reason:since', |||
        instance:pleg_primary_reason:since and %(recent)s
          or
        %(recent)s * 0 + time()
      ||| % vars),
      rule(total, 'count by (%(job)s, reason) (%(recent)s)' % vars),
      rule(group % 'nodes:count', union(false)),
      rule(group % 'reason:count', union(true)),
      rule(group % 'share:ratio', '%(b)s / %(perGroup)s %(n)s' % vars),
      // Half a node more on both sides: a rest without nodes has no share of its own.
      rule(group % 'rest_share:ratio', |||
        (%(B)s - on (%(job)s, reason) group_right () %(b)s + 0.5)
          / %(perGroup)s
        (%(N)s - on (%(job)s) group_right () %(n)s + 0.5)
      ||| % vars),
      rule(group % 'lift:ratio', 'cluster:plegd_group_share:ratio / cluster:plegd_group_rest_share:ratio'),
      // How unlikely it is by chance that so many of the broken nodes are in the group: -ln of
      // Chernoff's bound for the binomial distribution.
      rule(group % 'evidence:nats', |||
        %(b)s * ln((%(b)s / %(perReason)s %(B)s) / %(perGroup)s (%(n)s / on (%(job)s) group_left () %(N)s))
          + (%(B)s - on (%(job)s, reason) group_right () %(b)s) * ln(
            clamp_min(1 - %(b)s / %(perReason)s %(B)s, 0.0001)
              / %(perGroup)s clamp_min(1 - %(n)s / on (%(job)s) group_left () %(N)s, 0.0001)
          )
      ||| % vars),
    ])],
  },

  prometheusAlerts+:: {
    groups+: [lib.group('plegd-common-cause', [
      lib.alert(
        'PLEGFleetCommonCause',
        |||
          topk by (%(job)s, reason) (1,
            cluster:plegd_group_evidence:nats >= %(evidence)s
              and %(b)s >= %(nodes)s
              and cluster:plegd_group_share:ratio >= %(share)s
              and cluster:plegd_group_lift:ratio >= %(lift)s
              and %(b)s / %(explaining)s >= %(explained)s
          )
        ||| % vars,
        lib.number(broken) + ' nodes {{ $labels.reason }}'
        + lib.with(lib.of('instance:pleg_primary_reason:since', ['reason']), ' in {{ . | first | value | humanizeDuration | reReplaceAll " .*" "" | reReplaceAll "m$" " min" }}', 'time() - min(%s)')
        + '; ' + lib.number(brokenHere) + ' of them {{ $labels.label }}={{ $labels.value }} (of ' + lib.number(here) + ' nodes with it; '
        + lib.number(lib.minus(broken, brokenHere)) + ' of ' + lib.number(lib.minus(all, here)) + ' others)',
        'These nodes have {{ $labels.reason }} and share {{ $labels.label }}={{ $labels.value }}.'
        + lib.with(lib.of('cluster:pleg_culprit_id:count', ['reason']), ' {{ . | first | value | printf "%.0f" }} of their culprits are the same {{ . | first | label "kind" }} {{ . | first | label "id" }}.', 'topk(1, %s)')
        + ' Stop the rollout, or look at what this group has in common; the dashboard "What do they share?" has all groups. It is a correlation, not a proof.',
        lib.runbook('fleets'),
      ),
      // No message: Alertmanager inhibits with it the alerts of the nodes that
      // PLEGFleetCommonCause counts.
      lib.alert(
        'PLEGNodeInFleetFault',
        'instance:pleg_primary_reason:active\n  and on (%s, reason) ALERTS{alertname="PLEGFleetCommonCause", alertstate="firing"}\n' % job,
        lib.node + ': one of many nodes with {{ $labels.reason }}',
        lib.node + ' has the reason that many nodes have. For inhibition only.',
        lib.runbook('fleets'),
        // Until Alertmanager has reported, every 5 min, that the inhibited alert is resolved.
        { keep_firing_for: '6m' },
      ),
    ])],
  },
}
