// Helpers that rules and dashboards share.
function(config) {
  local join(parts) = std.join(', ', [p for p in parts if p != '']),

  // metric returns a selector of a metric of plegd: metric('pleg_verdict', 'state="unhealthy"').
  metric(name, matchers='', range='', offset='')::
    local inside = join([config.plegdSelector, matchers]);
    name + (if inside == '' then '' else '{' + inside + '}')
    + (if range == '' then '' else '[' + range + ']')
    + (if offset == '' then '' else ' offset ' + offset),

  // last is the newest sample of the last two scrapes: one that a busy node misses does not
  // end an alert, nor begin its `for` again.
  last(name, matchers=''):: 'last_over_time(' + $.metric(name, matchers, config.lookback) + ')',

  // up selects the targets that may be plegds.
  up:: 'up' + (if config.upSelector == '' then '' else '{' + config.upSelector + '}'),

  // What identifies a job and a plegd. Never all labels: a pod's name changes with each rollout.
  byJob:: '%s, job' % config.clusterLabel,
  byInstance:: $.byJob + ', instance',

  // Templates of annotations.
  node:: '{{ or $labels.%s $labels.instance }}' % config.nodeLabel,
  // of is a template's query for a series of the same node. Alerts that fire whatever the
  // reason look it up here and do not have it in a label: a label that changes begins `for`
  // again. They look it up in recorded series, which only nodes with a reason have: the
  // lookups of a thousand broken nodes must not take longer than an interval.
  local of(name) =
    "printf \"%(name)s{%(cluster)s='%%s',job='%%s',instance='%%s'}\" $labels.%(cluster)s $labels.job $labels.instance | query"
    % { name: name, cluster: config.clusterLabel },
  // findReason sets $reason for the rest of the template.
  local findReason = '{{ $reason := "" }}{{ with ' + of('instance:pleg_primary_reason:active') + ' }}{{ $reason = . | first | label "reason" }}{{ end }}',

  // Texts that alerts have in common, for std.format. Each part is left out where the node has
  // no such series.
  texts:: {
    node: $.node,
    findReason: findReason,
    colonReason: '{{ if $reason }}: {{ $reason }}{{ end }}',
    reason: '{{ if $reason }} Reason: {{ $reason }}.{{ end }}',
    culprit: '{{ with ' + of('instance:pleg_culprit:active') + ' }} Kind of culprit: {{ . | first | label "kind" }}.{{ end }}',
    countdown: '{{ with ' + of('pleg_not_ready_in_seconds') + ' }} Prediction: the API shows the node as NotReady '
               + '{{ if eq (. | first | value) 0.0 }}now{{ else }}in {{ . | first | value | humanizeDuration }} at the earliest{{ end }}.{{ end }}',
    steps: ' On the node, plegd status has the evidence{{ if $reason }} and plegd reasons {{ $reason }} the steps{{ end }}.',
  },

  runbook(page):: config.runbookBaseURL + page + config.runbookSuffix,
  // The page of the primary reason, or the one for a node without a reason.
  reasonRunbook:: findReason + config.runbookBaseURL + '{{ if $reason }}reasons/{{ $reason }}{{ else }}troubleshooting{{ end }}' + config.runbookSuffix,
}
