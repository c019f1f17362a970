// What broken nodes share. For each reason and each value of each grouping label: nodes with the
// reason, nodes in the group, share in the group and in the rest, and the lift between them.
{
  local config = $._config,
  local lib = (import 'lib.libsonnet')(config),
  local m = lib.metric,
  local job = lib.byJob,
  local instance = lib.byInstance,
  local rule(record, expr) = { record: record, expr: expr },
  local recent = 'instance:pleg_primary_reason:recent',
  local total = 'cluster:pleg_primary_reason:recent',
  local group = 'cluster:plegd_group_%s',

  // Grouping labels of pleg_node_info and, joined by the node's name, of kube_node_labels.
  local dimensions = [{ label: l, from: l, kube: false } for l in config.groupLabels]
                     + [{ label: l, from: config.kubeNodeLabels[l], kube: true } for l in std.objectFields(config.kubeNodeLabels)],

  // labelled returns a count by a dimension's label as series with the labels `label` and `value`.
  local labelled(d, count) =
    'sum without (%s) (label_replace(label_replace(\n  %s,\n  "value", "$1", "%s", "(.*)"), "label", "%s", "", ""))' % [d.from, count, d.from, d.label],
  local byNode = '%s, %s' % [config.clusterLabel, config.nodeLabel],
  local kube(d) = 'on (%s) group_left (%s) topk by (%s) (1, kube_node_labels{%s!=""})' % [byNode, d.from, byNode, d.from],
  local nodesIn(d) = labelled(d, if d.kube
  then 'count by (%s, %s) (%s * %s)' % [job, d.from, m('pleg_threshold_seconds'), kube(d)]
  else 'count by (%s, %s) (%s)' % [job, d.from, m('pleg_node_info', d.from + '!=""')]),
  // topk: a node whose label has just changed has two series for a moment.
  local reasonsIn(d) = labelled(d, 'count by (%s, reason, %s) (%s * %s)' % [
    job,
    d.from,
    recent,
    if d.kube then kube(d)
    else 'on (%s) group_left (%s) topk by (%s) (1, %s and on (%s) %s)' % [instance, d.from, instance, m('pleg_node_info', d.from + '!=""'), instance, recent],
  ]),
  local union(count) = std.join('\nor\n', [count(d) for d in dimensions]),

  local vars = {
    job: job,
    clusterLabel: config.clusterLabel,
    b: group % 'reason:count',  // nodes of the group with the reason
    n: group % 'nodes:count',  // nodes of the group
    B: total,  // nodes with the reason
    N: 'cluster:plegd_nodes:count',
  },
  local c = config.commonCause,
  // many returns the right side of a match of one value a reason.
  local perReason = 'on (%s, reason) group_left ()' % job,
  local perGroup = 'on (%s, label, value) group_left ()' % job,
  // A template's query for one value of the alert's reason or group.
  local of(name, labels) =
    "printf \"%s{%s='%%s',job='%%s',%s}\" $labels.%s $labels.job %s | query" % [
      name,
      config.clusterLabel,
      std.join(',', [l + "='%s'" for l in labels]),
      config.clusterLabel,
      std.join(' ', ['$labels.' + l for l in labels]),
    ],
  local number(name, labels) = '{{ with %s }}{{ . | first | value | printf "%%.0f" }}{{ end }}' % of(name, labels),

  prometheusRules+:: {
    groups+: [lib.group('plegd-fleet', [
      // Nodes that had the reason for a while within the window, and since when.
      rule('instance:pleg_primary_reason:sustained', |||
        max by (%(instance)s, %(node)s, reason) (
          instance:pleg_primary_reason:active
            and on (%(instance)s, reason) instance:pleg_primary_reason:active offset %(hold)s
            and on (%(instance)s, reason) %(severity)s
        )
      ||| % { instance: instance, node: config.nodeLabel, hold: c.hold, severity: m('pleg_reason', 'severity=~"critical|warning"') }),
      rule(recent, 'present_over_time(instance:pleg_primary_reason:sustained[%s])' % c.window),
      rule('instance:pleg_primary_reason:since', |||
        instance:pleg_primary_reason:since and %(recent)s
          or
        %(recent)s * 0 + time()
      ||| % { recent: recent }),
      rule(total, 'count by (%s, reason) (%s)' % [job, recent]),
      rule(group % 'nodes:count', union(nodesIn)),
      rule(group % 'reason:count', union(reasonsIn)),
      rule(group % 'share:ratio', '%s / %s cluster:plegd_group_nodes:count' % [vars.b, perGroup]),
      // Half a node more on both sides: a rest without nodes has no share of its own.
      rule(group % 'rest_share:ratio', |||
        (%(B)s - on (%(job)s, reason) group_right () %(b)s + 0.5)
          / %(perGroup)s
        (%(N)s - on (%(job)s) group_right () %(n)s + 0.5)
      ||| % (vars { perGroup: perGroup })),
      rule(group % 'lift:ratio', 'cluster:plegd_group_share:ratio / cluster:plegd_group_rest_share:ratio'),
      // How unlikely it is by chance that so many of the broken nodes are in the group: -ln of
      // Chernoff's bound for the binomial distribution.
      rule(group % 'evidence:nats', |||
        %(b)s * ln((%(b)s / %(perReason)s %(B)s) / %(perGroup)s (%(n)s / on (%(job)s) group_left () %(N)s))
          + (%(B)s - on (%(job)s, reason) group_right () %(b)s) * ln(
            clamp_min(1 - %(b)s / %(perReason)s %(B)s, 0.0001)
              / %(perGroup)s clamp_min(1 - %(n)s / on (%(job)s) group_left () %(N)s, 0.0001)
          )
      ||| % (vars { perReason: perReason, perGroup: perGroup })),
    ])],
  },

  prometheusAlerts+:: {
    groups+: [lib.group('plegd-common-cause', [
      $.alert(
        'PLEGFleetCommonCause',
        |||
          topk by (%(job)s, reason) (1,
            cluster:plegd_group_evidence:nats >= %(evidence)s
              and cluster:plegd_group_reason:count >= %(nodes)s
              and cluster:plegd_group_share:ratio >= %(share)s
              and cluster:plegd_group_lift:ratio >= %(lift)s
              and cluster:plegd_group_reason:count / %(perReason)s cluster:pleg_primary_reason:recent >= %(explained)s
          )
        ||| % (vars { evidence: c.evidence, nodes: c.nodes, share: c.share, lift: c.lift, explained: c.explained, perReason: perReason }),
        number(total, ['reason']) + ' nodes {{ $labels.reason }}'
        + '{{ with printf "time() - min(instance:pleg_primary_reason:since{%s=\'%%s\',job=\'%%s\',reason=\'%%s\'})" $labels.%s $labels.job $labels.reason | query }} in {{ . | first | value | humanizeDuration | reReplaceAll " .*" "" | reReplaceAll "m$" " min" }}{{ end }}; ' % [config.clusterLabel, config.clusterLabel]
        + number(group % 'reason:count', ['reason', 'label', 'value']) + ' of them {{ $labels.label }}={{ $labels.value }} (of '
        + number(group % 'nodes:count', ['label', 'value']) + ' nodes with it; '
        + '{{ with printf "%(B)s{%(c)s=\'%%s\',job=\'%%s\',reason=\'%%s\'} - on () %(b)s{%(c)s=\'%%s\',job=\'%%s\',reason=\'%%s\',label=\'%%s\',value=\'%%s\'}" $labels.%(c)s $labels.job $labels.reason $labels.%(c)s $labels.job $labels.reason $labels.label $labels.value | query }}{{ . | first | value | printf "%%.0f" }}{{ end }} of ' % { c: config.clusterLabel, B: vars.B, b: vars.b }
        + '{{ with printf "%(N)s{%(c)s=\'%%s\',job=\'%%s\'} - on () %(n)s{%(c)s=\'%%s\',job=\'%%s\',label=\'%%s\',value=\'%%s\'}" $labels.%(c)s $labels.job $labels.%(c)s $labels.job $labels.label $labels.value | query }}{{ . | first | value | printf "%%.0f" }}{{ end }} others)' % { c: config.clusterLabel, N: vars.N, n: vars.n },
        'These nodes have {{ $labels.reason }} and share {{ $labels.label }}={{ $labels.value }}.'
        + '{{ with printf "topk(1, cluster:pleg_culprit_id:count{%s=\'%%s\',job=\'%%s\',reason=\'%%s\'})" $labels.%s $labels.job $labels.reason | query }} {{ . | first | value | printf "%%.0f" }} of their culprits are the same {{ . | first | label "kind" }} {{ . | first | label "id" }}.{{ end }} Stop the rollout, or look at what this group has in common; the dashboard "What do they share?" has all groups. It is a correlation, not a proof.' % [config.clusterLabel, config.clusterLabel],
        lib.runbook('fleets'),
      ),
      // No message: Alertmanager inhibits with it the alerts of the nodes that
      // PLEGFleetCommonCause counts.
      $.alert(
        'PLEGNodeInFleetFault',
        |||
          instance:pleg_primary_reason:active
            and on (%s, reason) ALERTS{alertname="PLEGFleetCommonCause", alertstate="firing"}
        ||| % job,
        lib.node + ': one of many nodes with {{ $labels.reason }}',
        lib.node + ' has the reason that many nodes have. For inhibition only.',
        lib.runbook('fleets'),
        // Until Alertmanager has reported, every 5 min, that the inhibited alert is resolved.
        { keep_firing_for: '6m' },
      ),
    ])],
  },
}
