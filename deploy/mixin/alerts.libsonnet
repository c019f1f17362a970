// The alerts, at most eight. Recording rules hold their state, so that an alert is one selector and
// a delay. A fault of one node is one notification, by the routes and inhibitions of
// deploy/alertmanager. plegd.quiet.test.yml plays what must raise none.
{
  local config = $._config,
  local lib = (import 'lib.libsonnet')(config),
  local m = lib.metric,
  local instance = lib.byInstance,
  local left = m('pleg_not_ready_in_seconds'),
  local active = 'instance:pleg_primary_reason:active',

  // held is a recorded state that lasts while plegd has nothing to report: a missed scrape or a
  // restart of plegd ends no alert.
  local held(record, expr) = lib.rule(record, |||
    max by (%(labels)s) (%(expr)s)
      or on (%(instance)s) (%(record)s and on (%(instance)s) instance:plegd_silent:active)
  ||| % { record: record, expr: expr, labels: lib.byNode + (if record == active then ', reason, severity' else ''), instance: instance }),

  // byClass selects the primary reasons of one class: those that config.reasons moves there, and of
  // the others those that the matchers select. Class by class as in the chart's plegd.reasonSelector.
  local any(reasons) = std.join('|', std.sort(reasons)),
  local soon = any(config.soon),
  local moved = std.objectFields(config.reasons),
  local byClass(class, matchers) =
    local here = [r for r in moved if config.reasons[r] == class];
    '%s{%s, reason!~"%s"}' % [active, matchers, any(moved)] + (if here == [] then '' else ' or %s{reason=~"%s"}' % [active, any(here)]),
  local classes = {
    critical: byClass('critical', 'severity="critical"'),
    warning: byClass('warning', 'severity="warning", reason=~"%s"' % soon),
    lasting: byClass('lasting', 'severity="warning", reason!~"%s"' % soon),
  },
  local reasonAlert(name, class) = lib.alert(
    name,
    '(%s)\n  and on (%s) %s\n' % [classes[class], instance, lib.known],
    lib.message,
    'plegd on ' + lib.node + ' reports {{ $labels.reason }}. `plegd status` on the node, or its page on port 20290, has the evidence and the steps.',
    lib.runbook('reasons/{{ $labels.reason }}'),
  ),
  local failing(failure, expr) = lib.rule('instance:plegd_failing:active', expr, { failure: failure }),

  reasonClasses:: { soon: std.sort(config.soon), reasons: config.reasons },

  prometheusAlerts+:: {
    groups+: [
      lib.group('plegd-node', [
        // Nothing can be known of the node: the scrape fails, or plegd has just started.
        lib.rule('instance:plegd_silent:active', 'max by (%s) (%s == 0 or %s == 1)' % [instance, lib.up, m('pleg_verdict', 'state="starting"')]),
        held(active, '%s and on (%s, reason) %s' % [m('pleg_reason', 'severity=~"critical|warning"'), instance, m('pleg_primary_reason')]),
        // The kubelet manages no pods, or has been about to stop for a minute: a restart of the
        // runtime is shorter.
        held('instance:pleg_unhealthy:active', '%s == 1 or %s < %d and %s' % [m('pleg_verdict', 'state="unhealthy"'), left, config.notReadySoonSeconds, m('pleg_not_ready_in_seconds', offset='1m')]),
        // When the API shows NotReady, by the clock: the sample's own time and what was left then.
        // It stays once the moment has come.
        lib.rule('instance:pleg_not_ready_at:timestamp', |||
          max by (%(labels)s) (timestamp(%(left)s) + (%(left)s > 0))
            or on (%(instance)s) (instance:pleg_not_ready_at:timestamp and on (%(instance)s) (%(left)s == 0 or instance:plegd_silent:active))
        ||| % { labels: lib.byNode, left: left, instance: instance }),
        // What the messages look up: cause, next step and culprit as labels; the value is the
        // time of NotReady, or 1 where none is predicted.
        lib.rule('instance:pleg_message:info', |||
          max by (%(labels)s) (%(info)s) * on (%(instance)s) group_left () max by (%(instance)s) (instance:pleg_not_ready_at:timestamp)
            or on (%(instance)s) max by (%(labels)s) (%(info)s)
            or on (%(instance)s) (instance:pleg_message:info and on (%(instance)s) instance:plegd_silent:active)
        ||| % { labels: instance + ', reason, cause, next, culprit', info: m('pleg_primary_reason_info'), instance: instance }),

        lib.alert(
          'PLEGUnhealthy',
          'instance:pleg_unhealthy:active\n  and on (%s) %s\n' % [instance, lib.known],
          lib.message,
          'By its own rules the kubelet on ' + lib.node + ' does not manage its pods, or is about to stop. `plegd status` on the node, or its page on port 20290, has the evidence and the steps.',
          lib.runbook(lib.with(lib.of('instance:pleg_message:info', ['instance']), 'reasons/{{ . | first | label "reason" }}', other='troubleshooting')),
        ),
        reasonAlert('PLEGReasonCritical', 'critical'),
        reasonAlert('PLEGReasonWarning', 'warning'),
        reasonAlert('PLEGReasonLasting', 'lasting'),
        lib.alert(
          'PLEGFlapping',
          'max by (%s) (increase(%s)) >= %d' % [lib.byNode, m('pleg_incidents_total', range=config.flapping.window), config.flapping.incidents],
          lib.node + ': {{ $value | printf "%.0f" }} incidents within ' + config.flapping.window + ': a fault comes and goes',
          'Several short faults on ' + lib.node + '. `plegd incidents` on the node lists what each was and what ended it.',
          lib.runbook('troubleshooting'),
        ),
      ]),

      lib.group('plegd-self', [
        // Remembers the jobs and clusters in which plegd was seen.
        lib.rule('cluster:plegd_nodes:count', 'count by (%s) (%s)' % [lib.byJob, lib.threshold]),
        failing('does not answer', lib.down),
        failing('cannot see the runtime', 'max by (%s) (%s == 1)' % [lib.byNode, m('pleg_verdict', 'state="unknown"')]),
        failing('restarts again and again', |||
          max by (%s) (changes(%s) >= %d)
            and on (%s) last_over_time(%s)
        ||| % [lib.byNode, m('process_start_time_seconds', range=config.unstable.window), config.unstable.restarts, instance, m('pleg_threshold_seconds', range=config.unstable.window)]),
        // Targets that are gone are not down.
        failing('is scraped nowhere', |||
          absent(%(threshold)s) unless on () group(%(seen)s)
            or
            group by (%(cluster)s) (%(seen)s) unless on (%(cluster)s) cluster:plegd_nodes:count
        ||| % { threshold: lib.threshold, cluster: config.clusterLabel, seen: 'last_over_time(cluster:plegd_nodes:count[%s])' % config.memory }),
        lib.alert(
          'PlegdFailing',
          'instance:plegd_failing:active\n',
          '{{ or $labels.%s $labels.instance $labels.%s "all nodes" }}: plegd {{ $labels.failure }}' % [config.nodeLabel, config.clusterLabel],
          'Nothing is known of the node from plegd. Does not answer: the node is gone, or only plegd; see systemctl status plegd, or its pod. Cannot see the runtime: a permission, a missing mount or another namespace. Restarts: the log has why. Scraped nowhere: check the scrape job.',
          lib.runbook('operating'),
        ),
      ]),
    ],
  },
}
