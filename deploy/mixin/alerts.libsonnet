// The alerts. One fault of a node is one alert, PLEGUnhealthy, and one fault of many nodes is
// one alert, PLEGFleetCommonCause (fleet.libsonnet). Boots, drains, reboots and upgrades raise
// none: plegd.quiet.test.yml.
{
  local config = $._config,
  local lib = (import 'lib.libsonnet')(config),
  local m = lib.metric,
  local last = lib.last,
  local instance = lib.byInstance,

  // alert returns a rule; its delay and severity are in the configuration.
  local alert(name, expr, summary, description, runbook, extra={}) = {
    alert: name,
    expr: expr,
    [if config.delays[name] != '' then 'for']: config.delays[name],
    labels: { severity: if std.objectHas(config.severities, name) then config.severities[name] else 'warning' } + config.alertLabels,
    annotations: { summary: summary, description: description, runbook_url: runbook },
  } + extra,
  alert:: alert,

  local active = 'instance:pleg_primary_reason:active',
  // The kubelet's own faults.
  local kubelets = 'KubeletStalled|KubeletDown',
  // primaryFor is a primary reason that has been active at every scrape of a time.
  local primaryFor(matchers, time) =
    '%s and count_over_time(%s) >= on (%s) group_left () count_over_time(%s) and %s and on (%s, reason) %s' % [
      m('pleg_reason', matchers),
      m('pleg_reason', matchers, time),
      instance,
      m('pleg_threshold_seconds', range=time),
      m('pleg_reason', matchers, offset=time),
      instance,
      active,
    ],

  prometheusAlerts+:: {
    groups+: [
      lib.group('plegd-node', [
        // The primary reason with the culprit's kind. Only nodes with a reason have this series.
        { record: active, expr: |||
          sum without (kind, id) (label_replace(
            %(reason)s
              * on (%(instance)s) group_left (kind) topk by (%(instance)s) (1, %(culprit)s),
            "culprit", "$1", "kind", "(.+)"
          ))
            or on (%(instance)s) %(reason)s
        ||| % { reason: last('pleg_primary_reason'), culprit: m('pleg_culprit'), instance: instance } },
        // The kubelet no longer manages pods; or it will not within a minute, after two minutes
        // of trouble; or relists are old; or a critical reason for two minutes. One alert, so that one fault is one
        // message whichever comes first.
        alert(
          'PLEGUnhealthy',
          |||
            (
              %(active)s
                or on (%(instance)s) max without (state) (%(unhealthy)s == 1)
            )
              and on (%(instance)s) (
                (%(unhealthy)s == 1 and on (%(instance)s) %(unhealthyBefore)s)
                  or on (%(instance)s) (
                    %(notReady)s > 0
                      and %(notReady)s < %(seconds)d
                      and on (%(instance)s) count_over_time(%(notReady2m)s) >= count_over_time(%(threshold2m)s)
                      and on (%(instance)s) %(notReadyBefore)s
                  )
                  or on (%(instance)s) (%(age)s > %(threshold)s * %(old)s)
                  or on (%(instance)s) (%(runtimes)s)
                  or on (%(instance)s) (%(kubelets)s)
              )
          ||| % {
            active: active,
            instance: instance,
            unhealthy: last('pleg_verdict', 'state="unhealthy"'),
            unhealthyBefore: m('pleg_verdict', 'state="unhealthy"', offset=config.bootGrace),
            notReady: m('pleg_not_ready_in_seconds'),
            notReady2m: m('pleg_not_ready_in_seconds', range='2m'),
            notReadyBefore: m('pleg_not_ready_in_seconds', offset='2m'),
            threshold2m: m('pleg_threshold_seconds', range='2m'),
            seconds: config.notReadySoonSeconds,
            age: m('pleg_last_seen_age_seconds'),
            threshold: m('pleg_threshold_seconds'),
            old: config.lastSeenCritical,
            runtimes: primaryFor('severity="critical", reason!~"%s"' % kubelets, '2m'),
            // Longer than an upgrade of the kubelet.
            kubelets: primaryFor('severity="critical", reason=~"%s"' % kubelets, '3m'),
          },
          lib.node + ': {{ if $labels.reason }}{{ $labels.reason }}: ' + lib.cause + '{{ else }}the kubelet no longer manages pods{{ end }}' + lib.countdown + lib.nextStep,
          'The kubelet on ' + lib.node + ' does not manage its pods, or is about to stop. `plegd status` on the node has the evidence{{ with $labels.reason }}, `plegd reasons {{ . }}` the steps{{ end }}.',
          lib.reasonRunbook,
        ),
        // Nothing is broken yet; long enough for a drain or a rollout to pass.
        alert(
          'PLEGReasonWarning',
          |||
            %s
              and on (%s, reason) %s
          ||| % [active, instance, last('pleg_reason', 'severity="warning"')],
          lib.node + ': {{ $labels.reason }}: ' + lib.cause + lib.countdown + lib.nextStep,
          'plegd on ' + lib.node + ' has reported {{ $labels.reason }} for 15 minutes or longer. `plegd status` on the node has the evidence, `plegd reasons {{ $labels.reason }}` the steps.',
          lib.reasonRunbook,
        ),
        // By the growth of the last hour and of the last quarter: a node that fills with pods
        // grows and stops.
        alert(
          'PLEGFDsRunningOut',
          |||
            %(open)s > %(max)s * %(ratio)s
              and predict_linear(%(open1h)s, %(hours)d * 3600) > %(max)s
              and predict_linear(%(open15m)s, %(hours)d * 3600) > %(max)s
          ||| % {
            open: m('pleg_runtime_process_open_fds'),
            open1h: m('pleg_runtime_process_open_fds', range='1h'),
            open15m: m('pleg_runtime_process_open_fds', range='15m'),
            max: m('pleg_runtime_process_max_fds'),
            ratio: config.fdsUsedRatio,
            hours: config.fdsHours,
          },
          lib.node + ': the runtime will run out of file descriptors',
          'The runtime on ' + lib.node + ' has {{ $value }} file descriptors open and reaches its limit within ' + config.fdsHours + ' hours at the pace of the last hour. At the limit it accepts no connection.',
          lib.runbook('reasons/FDsRunningOut'),
        ),
        // plegd cannot see the runtime; others may.
        alert(
          'PlegdBlind',
          '%s == 1' % last('pleg_verdict', 'state="unknown"'),
          lib.node + ': plegd cannot see the runtime',
          'plegd on ' + lib.node + ' runs and cannot see the runtime: a permission, a missing mount or another namespace. The node itself may be well; nothing is known. `plegd status` on the node has the cause.',
          lib.runbook('operating'),
        ),
      ]),

      lib.group('plegd-self', [
        // Remembers the jobs and clusters in which plegd was seen.
        { record: 'cluster:plegd_nodes:count', expr: 'count by (%s) (%s)' % [lib.byJob, m('pleg_threshold_seconds')] },
        // Longer than a reboot. Jobs that hold other programs too are left out.
        alert(
          'PlegdDown',
          |||
            %(up)s == 0
              and on (%(job)s) last_over_time(cluster:plegd_nodes:count[%(memory)s])
              unless on (%(job)s) count by (%(job)s) (%(up)s == 1) > count by (%(job)s) (%(threshold)s)
          ||| % { up: lib.up, job: lib.byJob, memory: config.memory, threshold: m('pleg_threshold_seconds') },
          lib.node + ': plegd does not answer',
          'Prometheus could not scrape plegd on ' + lib.node + ' for 10 minutes. The node may be gone, or only plegd: compare other jobs of the node. On the node, see systemctl status plegd; in a cluster, the pod of plegd on that node.',
          lib.runbook('operating'),
        ),
        // Targets that are gone are not down.
        alert(
          'PlegdAbsent',
          |||
            absent(%(threshold)s) unless on () group(last_over_time(cluster:plegd_nodes:count[%(memory)s]))
              or
              group by (%(cluster)s) (last_over_time(cluster:plegd_nodes:count[%(memory)s])) unless on (%(cluster)s) cluster:plegd_nodes:count
          ||| % { threshold: m('pleg_threshold_seconds'), cluster: config.clusterLabel, memory: config.memory },
          'no metrics of plegd{{ with $labels.%s }} from {{ . }}{{ end }}' % config.clusterLabel,
          'Prometheus has scraped no plegd{{ with $labels.%s }} from {{ . }}{{ end }} for 10 minutes. Check the scrape job and its targets.' % config.clusterLabel,
          lib.runbook('operating'),
        ),
      ]),
    ],
  },
}
