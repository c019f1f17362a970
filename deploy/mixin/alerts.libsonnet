// The alerts. Nothing here fires for a boot, a drain, a reboot, an upgrade of plegd that takes
// less than two minutes, or one of the runtime that takes less than the 30 s after which the
// kubelet stops managing pods: plegd.quiet.test.yml plays each. When the page comes beside a
// real kubelet is in plegd.kubelet.test.yml.
//
// All ages come from the node's own monotonic clock, so a node whose wall clock is off raises
// no alert. An age that is not known is absent, never 0; in rules of your own with the
// timestamp add `> 0`.
{
  local config = $._config,
  local lib = (import 'lib.libsonnet')(config),
  local m = lib.metric,
  local last = lib.last,
  // A template that uses the reason looks it up first.
  local expand(text) = (if std.length(std.findSubstr('Reason)s', text) + std.findSubstr('reason)s', text) + std.findSubstr('steps)s', text)) > 0 then lib.texts.findReason else '') + text % lib.texts,

  // alert returns a rule; its delay and severity are in the configuration.
  local alert(name, expr, summary, description, runbook, extra={}) = {
    alert: name,
    expr: expr,
    [if config.delays[name] != '' then 'for']: config.delays[name],
    labels: { severity: if std.objectHas(config.severities, name) then config.severities[name] else 'warning' } + config.alertLabels,
    annotations: { summary: expand(summary), description: expand(description), runbook_url: runbook },
  } + extra,

  local group(name, rules) = {
    name: name,
    [if config.interval != '' then 'interval']: config.interval,
    rules: rules,
  },

  local ofReason = lib.runbook('reasons/{{ $labels.reason }}'),
  // The kubelet's own faults have an alert of their own.
  local kubelets = 'KubeletStalled|KubeletDown',
  local primary(severity) = |||
    %s
      and on (%s, reason) %s == 1
  ||| % [m('instance:pleg_primary_reason:active', 'reason!~"%s"' % kubelets), lib.byInstance, last('pleg_reason', 'severity="%s"' % severity)],

  prometheusAlerts+:: {
    groups+: [
      // A node, by the kubelet's own rules.
      group('plegd-node', [
        // What alerts and their texts look up, in this group so that it is never older than they.
        // Only nodes with a reason have these series: of each of 5,000 nodes every reason is read
        // once here, not once for each alert.
        { record: 'instance:pleg_primary_reason:active', expr: '%s == 1' % last('pleg_primary_reason') },
        { record: 'instance:pleg_culprit:active', expr: '%s == 1' % m('pleg_culprit') },
        // At once: PLEG past its threshold, the runtime down for 30 s, or no network. Where the
        // runtime answers Version, the API shows the node NotReady within 10 s of it.
        alert(
          'PLEGUnhealthy',
          |||
            %s == 1
              and on (%s) %s
          ||| % [last('pleg_verdict', 'state="unhealthy"'), lib.byInstance, m('pleg_verdict', 'state="unhealthy"', offset=config.bootGrace)],
          '%(node)s: the kubelet no longer manages pods%(colonReason)s',
          'By its own rules the kubelet on %(node)s no longer manages pods.%(reason)s%(culprit)s%(countdown)s%(steps)s',
          lib.reasonRunbook,
        ),
        // In trouble at every scrape of the last two minutes, and less than one minute left.
        // Also sees what only the modelled kubelet knows: inspections that take it longer than
        // the threshold while plegd's own lists are young.
        alert(
          'PLEGNotReadySoon',
          |||
            %(in)s > 0
              and %(in)s < %(seconds)d
              and on (%(instance)s) count_over_time(%(in2m)s) >= count_over_time(%(threshold2m)s)
              and on (%(instance)s) %(inOffset)s
          ||| % {
            'in': m('pleg_not_ready_in_seconds'),
            in2m: m('pleg_not_ready_in_seconds', range='2m'),
            inOffset: m('pleg_not_ready_in_seconds', offset='2m'),
            threshold2m: m('pleg_threshold_seconds', range='2m'),
            seconds: config.notReadySoonSeconds,
            instance: lib.byInstance,
          },
          '%(node)s: predicted to turn NotReady in less than a minute%(colonReason)s',
          'Prediction: the API shows %(node)s as NotReady in {{ $value | humanizeDuration }} at the earliest, if nothing changes.%(reason)s%(culprit)s%(steps)s',
          lib.reasonRunbook,
        ),
        // 2/3 of the threshold in force.
        alert(
          'PLEGLastSeenTooOld',
          '%s > %s * %s' % [m('pleg_last_seen_age_seconds'), m('pleg_threshold_seconds'), config.lastSeenCritical],
          '%(node)s: PLEG is unhealthy or about to be%(colonReason)s',
          'The last successful relist on %(node)s started {{ $value | humanizeDuration }} ago.%(reason)s%(culprit)s%(countdown)s%(steps)s',
          lib.reasonRunbook,
        ),
        // 1/6 of the threshold in force (30 s of 3 min) after the next relist was due, and not
        // for a moment only.
        alert(
          'PLEGLastSeenOld',
          '%s > %s * %s + %s' % [last('pleg_last_seen_age_seconds'), last('pleg_threshold_seconds'), config.lastSeenWarning, last('pleg_relist_period_seconds')],
          '%(node)s: the container runtime does not answer relists%(colonReason)s',
          'The last successful relist on %(node)s started {{ $value | humanizeDuration }} ago.%(reason)s%(culprit)s Past its threshold the kubelet manages no pods.%(countdown)s%(steps)s',
          lib.reasonRunbook,
        ),
        // 0 means never: kept apart from "old", which it is not.
        alert(
          'PLEGNeverSeen',
          '%s == 0' % m('pleg_last_seen_seconds'),
          '%(node)s: no relist has ever succeeded%(colonReason)s',
          'plegd on %(node)s runs, but the container runtime has not answered a single relist.%(reason)s Check that a runtime is installed there and that --runtime-endpoint is right.%(steps)s',
          lib.reasonRunbook,
        ),

        // Why, while the node may still be Ready. The primary reason, for as long as it stays the same one.
        alert(
          'PLEGReasonCritical',
          primary('critical'),
          '%(node)s: {{ $labels.reason }}',
          'plegd on %(node)s has found {{ $labels.reason }} for two minutes or longer.%(culprit)s%(countdown)s On the node, plegd status has the evidence and plegd reasons {{ $labels.reason }} the steps.',
          ofReason,
        ),
        // Nothing is broken yet; long enough for a drain or a rollout to pass.
        alert(
          'PLEGReasonWarning',
          primary('warning'),
          '%(node)s: {{ $labels.reason }}',
          'plegd on %(node)s has found {{ $labels.reason }} for 15 minutes or longer.%(culprit)s%(countdown)s On the node, plegd status has the evidence and plegd reasons {{ $labels.reason }} the steps.',
          ofReason,
        ),
        // The kubelet is down or late, and the runtime is not the cause: the kubelet's rules on
        // the runtime hold, and nothing points towards their end. What the API shows
        // (pleg_node_ready_predicted) does not say that: during a hang it stays Ready for two
        // minutes.
        alert(
          'PLEGKubeletStalled',
          |||
            %s == 1
              and on (%s) %s == 1
              unless on (%s) %s
          ||| % [last('pleg_reason', 'reason=~"%s"' % kubelets), lib.byInstance, last('pleg_sync_loop_allowed'), lib.byInstance, last('pleg_rules_fail_in_seconds')],
          '%(node)s: the runtime works, the kubelet does not ({{ $labels.reason }})',
          'The runtime on %(node)s answers plegd, and the kubelet does not do its work. Do not restart the runtime. On the node, see plegd status and journalctl -u kubelet.',
          ofReason,
        ),
      ]),

      // What is running out, before it has run out.
      group('plegd-capacity', [
        // What the kubelet's relist takes, call after call. A relist that never returns is not in
        // here: the ages above see that one; those that came back late from an outage are left out.
        alert(
          'PLEGRelistSlow',
          |||
            histogram_quantile(0.99, rate(%s)) > %d
              unless on (%s) max_over_time(%s) == 1
          ||| % [m('pleg_relist_duration_seconds_bucket', range='5m'), config.relistSlowSeconds, lib.byInstance, m('pleg_verdict', 'state="unhealthy"', '10m')],
          '%(node)s: relists are slow',
          'One relist in a hundred on %(node)s takes the kubelet {{ $value | humanizeDuration }} or more.%(reason)s%(culprit)s Until it ends the kubelet starts, stops and restarts nothing there.%(steps)s',
          lib.runbook('reasons/RelistSlow'),
        ),
        // plegd makes one fresh dial a minute while the runtime does not accept. One failure
        // counts for three minutes, so those of a restart of two minutes are gone after five.
        alert(
          'PLEGAcceptFailing',
          'increase(%s) > 0' % m('pleg_socket_accept_failures_total', range='3m'),
          '%(node)s: the runtime does not accept new connections ({{ $labels.cause }})',
          'New connections to the runtime on %(node)s fail. Existing ones, such as the kubelet\'s, may still work: do not restart the kubelet.%(reason)s%(culprit)s%(steps)s',
          lib.runbook('reasons/{{ if eq $labels.cause "fd_exhausted" }}AcceptFDExhausted{{ else if eq $labels.cause "queue_full" }}AcceptQueueFull{{ else }}AcceptStalled{{ end }}'),
        ),
        // By the growth of the last hour and still of the last quarter of one: a node that fills
        // with pods grows and stops. At the limit the runtime accepts nobody, and logs nothing.
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
          '%(node)s: the runtime\'s file descriptors will run out',
          'The runtime on %(node)s has {{ $value }} file descriptors open. Prediction: at the pace of the last hour it reaches its limit within ' + config.fdsHours + ' hours.%(steps)s',
          lib.runbook('reasons/FDsRunningOut'),
        ),
        // Above the limit every relist fails, and a restart does not help.
        alert(
          'PLEGResponseNearLimit',
          '%s / ignoring (operation_type) group_left () %s > %s' % [m('pleg_runtime_response_bytes'), m('pleg_runtime_response_limit_bytes'), config.responseNearLimitRatio],
          '%(node)s: the response to {{ $labels.operation_type }} is near the size limit',
          'The response to {{ $labels.operation_type }} on %(node)s has {{ $value | humanizePercentage }} of the size that the kubelet accepts. Above it the node is NotReady until containers are removed.%(steps)s',
          lib.runbook('reasons/ResponseNearLimit'),
        ),
      ]),

      // Many nodes at once: a fault of the fleet.
      group('plegd-fleet', [
        // Counts alerts, each of which has stood for its time: an upgrade that rolls over the
        // fleet is none.
        alert(
          'PLEGReasonOnManyNodes',
          |||
            %(alerts)s >= %(nodes)d
              and
              %(alerts)s
                >= on (%(job)s) group_left () count by (%(job)s) (%(threshold)s) * %(ratio)s
          ||| % {
            alerts: 'count by (%s, reason) (ALERTS{alertname=~"PLEGReasonCritical|PLEGReasonWarning|PLEGKubeletStalled", alertstate="firing"})' % lib.byJob,
            job: lib.byJob,
            threshold: m('pleg_threshold_seconds'),
            nodes: config.manyNodes,
            ratio: config.manyNodesRatio,
          },
          '{{ $value }} nodes at once: {{ $labels.reason }}',
          '{{ $value }} nodes{{ with $labels.%s }} of {{ . }}{{ end }} have the same primary reason, {{ $labels.reason }}. Look for what they share (a rollout, an image, a storage or network backend) before you fix them one by one.' % config.clusterLabel,
          ofReason,
        ),
        // No notification: alertmanager.yml inhibits with it the alerts of the nodes that
        // PLEGReasonOnManyNodes counts.
        alert(
          'PLEGNodeInFleetFault',
          |||
            %s
              and on (%s, reason) ALERTS{alertname="PLEGReasonOnManyNodes", alertstate="firing"}
          ||| % [last('instance:pleg_primary_reason:active'), lib.byJob],
          '%(node)s: one of many nodes with {{ $labels.reason }}',
          '%(node)s has the reason that many nodes have. Not meant to be sent to anybody.',
          ofReason,
          // Until Alertmanager has sent (every 5 min) that what it inhibits is over.
          { keep_firing_for: '6m' },
        ),
      ]),

      // plegd itself.
      group('plegd-self', [
        // In which jobs and clusters plegd is. The alerts on its absence remember it.
        { record: 'cluster:plegd_nodes:count', expr: 'count by (%s) (%s)' % [lib.byJob, m('pleg_threshold_seconds')] },
        // In every job of which plegd was seen, whatever it is called, unless it holds other
        // programs too. Longer than a reboot.
        alert(
          'PlegdDown',
          |||
            %(up)s == 0
              and on (%(job)s) last_over_time(cluster:plegd_nodes:count[%(memory)s])
              unless on (%(job)s) count by (%(job)s) (%(up)s == 1) > count by (%(job)s) (%(threshold)s)
          ||| % { up: lib.up, job: lib.byJob, memory: config.memory, threshold: m('pleg_threshold_seconds') },
          '%(node)s: plegd does not answer',
          'Prometheus could not scrape plegd on %(node)s for 10 minutes. The node may be gone, or only plegd: look at other jobs of the node. On the node, see systemctl status plegd; in a cluster, the pod of plegd on that node.',
          lib.runbook('operating'),
        ),
        // An upgrade starts it once.
        alert(
          'PlegdRestarting',
          |||
            changes(process_start_time_seconds%s[1h]) > %d
              and on (%s) %s
          ||| % [if config.plegdSelector == '' then '' else '{' + config.plegdSelector + '}', config.restartsPerHour, lib.byInstance, m('pleg_threshold_seconds')],
          '%(node)s: plegd restarts again and again',
          'plegd on %(node)s was started {{ $value }} times within an hour. On the node, see journalctl -u plegd; in a cluster, the previous log of its pod.',
          lib.runbook('operating'),
        ),
        // A source that answers is 1; one that is not configured is absent.
        alert(
          'PlegdEvidenceMissing',
          '%s == 0' % m('pleg_evidence_up'),
          '%(node)s: plegd is without {{ $labels.source }}',
          'The source {{ $labels.source }} has not answered on %(node)s for 30 minutes: a reason that needs it is not found. For state, web and control: plegd\'s state directory, web address or control socket does not work. The cause is in plegd status and in plegd\'s log.',
          lib.runbook('operating'),
        ),
        // Of a whole cluster.
        alert(
          'PlegdAbsent',
          |||
            absent(%(threshold)s) unless on () group(last_over_time(cluster:plegd_nodes:count[%(memory)s]))
              or
              group by (%(cluster)s) (last_over_time(cluster:plegd_nodes:count[%(memory)s])) unless on (%(cluster)s) cluster:plegd_nodes:count
          ||| % { threshold: m('pleg_threshold_seconds'), cluster: config.clusterLabel, memory: config.memory },
          'Prometheus has no metrics of any plegd{{ with $labels.%s }} in {{ . }}{{ end }}' % config.clusterLabel,
          'No plegd{{ with $labels.%s }} in {{ . }}{{ end }} has been scraped for 10 minutes: service discovery or the scrape configuration is broken, or no plegd runs. Nobody watches the nodes\' PLEG.' % config.clusterLabel,
          lib.runbook('install'),
        ),
      ]),
    ],
  },
}
