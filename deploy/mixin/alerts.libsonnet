// The alerts. One fault of a node is one alert, PLEGUnhealthy, and one fault of many nodes is
// one alert, PLEGFleetCommonCause (fleet.libsonnet). Boots, drains, reboots and upgrades raise
// none: plegd.quiet.test.yml.
{
  local config = $._config,
  local lib = (import 'lib.libsonnet')(config),
  local m = lib.metric,
  local last = lib.last,
  local instance = lib.byInstance,
  local active = 'instance:pleg_primary_reason:active',
  local threshold = m('pleg_threshold_seconds'),

  // always: a series that was there at every scrape of a time; by has the labels to match.
  local always(name, time, matchers='', by=instance) =
    'count_over_time(%s) >= on (%s) group_left () count_over_time(%s) and on (%s) %s' %
    [m(name, matchers, time), instance, m('pleg_threshold_seconds', range=time), by, m(name, matchers, offset=time)],
  local primaryFor(matchers, time) =
    local by = instance + ', reason';
    '%s and %s and on (%s) %s' % [m('pleg_reason', matchers), always('pleg_reason', time, matchers, by), by, active],
  // The kubelet's own faults.
  local kubelets = 'KubeletStalled|KubeletDown|KubeletDisconnected',
  local unhealthy = last('pleg_verdict', 'state="unhealthy"') + ' == 1',
  local fds(range='') = m('pleg_runtime_process_open_fds', range=range),
  local limit = m('pleg_runtime_process_max_fds'),
  local fdsFull(range) = 'predict_linear(%s, %d * 3600) > %s' % [fds(range), config.fdsHours, limit],
  local left = m('pleg_not_ready_in_seconds'),
  // What makes a node unhealthy, whichever comes first.
  local conditions = [
    '%s and on (%s) %s' % [unhealthy, instance, m('pleg_verdict', 'state="unhealthy"', offset=config.bootGrace)],
    '%s > 0 and %s < %d and on (%s) %s' % [left, left, config.notReadySoonSeconds, instance, always('pleg_not_ready_in_seconds', '2m')],
    '%s > %s * %s' % [m('pleg_last_seen_age_seconds'), threshold, config.lastSeenCritical],
    primaryFor('severity="critical", reason!~"%s"' % kubelets, '2m'),
    // Longer than an upgrade of the kubelet.
    primaryFor('severity="critical", reason=~"%s"' % kubelets, '3m'),
  ],

  prometheusAlerts+:: {
    groups+: [
      lib.group('plegd-node', [
        // The primary reason with the culprit's kind. Only nodes with a reason have this series.
        lib.rule(active, |||
          sum without (kind, id) (label_replace(
            %(reason)s
              * on (%(instance)s) group_left (kind) topk by (%(instance)s) (1, %(culprit)s),
            "culprit", "$1", "kind", "(.+)"
          ))
            or on (%(instance)s) %(reason)s
        ||| % { reason: last('pleg_primary_reason'), culprit: m('pleg_culprit'), instance: instance }),
        // The kubelet no longer manages pods; or it will not within a minute, after two minutes
        // of trouble; or relists are old; or a critical reason for two minutes. One alert, so
        // that one fault is one message.
        lib.alert(
          'PLEGUnhealthy',
          |||
            (
              %(active)s
                or on (%(instance)s) max without (state) (%(unhealthy)s)
            )
              and on (%(instance)s) (
                (%(conditions)s)
              )
          ||| % {
            active: active,
            instance: instance,
            unhealthy: unhealthy,
            conditions: std.join(')\n      or on (%s) (' % instance, conditions),
          },
          lib.node + ': {{ if $labels.reason }}{{ $labels.reason }}: ' + lib.cause + '{{ else }}the kubelet no longer manages pods{{ end }}' + lib.countdown + lib.nextStep,
          'The kubelet on ' + lib.node + ' does not manage its pods, or is about to stop. `plegd status` on the node has the evidence{{ with $labels.reason }}, `plegd reasons {{ . }}` the steps{{ end }}.',
          lib.reasonRunbook,
        ),
        // Nothing is broken yet; long enough for a drain or a rollout to pass.
        lib.alert(
          'PLEGReasonWarning',
          '%s\n  and on (%s, reason) %s\n' % [active, instance, last('pleg_reason', 'severity="warning"')],
          lib.node + ': {{ $labels.reason }}: ' + lib.cause + lib.countdown + lib.nextStep,
          'plegd on ' + lib.node + ' has reported {{ $labels.reason }} for 15 minutes or longer. `plegd status` on the node has the evidence, `plegd reasons {{ $labels.reason }}` the steps.',
          lib.reasonRunbook,
        ),
        // By the growth of the last hour and of the last quarter: a node that fills with pods
        // grows and stops.
        lib.alert(
          'PLEGFDsRunningOut',
          '%s > %s * %s\n  and %s\n  and %s\n' % [fds(), limit, config.fdsUsedRatio, fdsFull('1h'), fdsFull('15m')],
          lib.node + ': the runtime will run out of file descriptors',
          'The runtime on ' + lib.node + ' has {{ $value }} file descriptors open and reaches its limit within ' + config.fdsHours + ' hours at the pace of the last hour. At the limit it accepts no connection.',
          lib.runbook('reasons/FDsRunningOut'),
        ),
        // plegd cannot see the runtime; others may.
        lib.alert(
          'PlegdBlind',
          '%s == 1' % last('pleg_verdict', 'state="unknown"'),
          lib.node + ': plegd cannot see the runtime',
          'plegd on ' + lib.node + ' runs and cannot see the runtime: a permission, a missing mount or another namespace. The node itself may be well; nothing is known. `plegd status` on the node has the cause.',
          lib.runbook('operating'),
        ),
      ]),

      lib.group('plegd-self', [
        // Remembers the jobs and clusters in which plegd was seen.
        lib.rule('cluster:plegd_nodes:count', 'count by (%s) (%s)' % [lib.byJob, threshold]),
        // Longer than a reboot.
        lib.alert(
          'PlegdDown',
          lib.down,
          lib.node + ': plegd does not answer',
          'Prometheus could not scrape plegd on ' + lib.node + ' for 10 minutes. The node may be gone, or only plegd: compare other jobs of the node. On the node, see systemctl status plegd; in a cluster, the pod of plegd on that node.',
          lib.runbook('operating'),
        ),
        // Targets that are gone are not down.
        lib.alert(
          'PlegdAbsent',
          |||
            absent(%(threshold)s) unless on () group(%(seen)s)
              or
              group by (%(cluster)s) (%(seen)s) unless on (%(cluster)s) cluster:plegd_nodes:count
          ||| % { threshold: threshold, cluster: config.clusterLabel, seen: 'last_over_time(cluster:plegd_nodes:count[%s])' % config.memory },
          'no metrics of plegd{{ with $labels.%s }} from {{ . }}{{ end }}' % config.clusterLabel,
          'Prometheus has scraped no plegd{{ with $labels.%s }} from {{ . }}{{ end }} for 10 minutes. Check the scrape job and its targets.' % config.clusterLabel,
          lib.runbook('operating'),
        ),
      ]),
    ],
  },
}
