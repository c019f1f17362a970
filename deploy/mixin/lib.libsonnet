// Helpers that rules and dashboards share.
function(config) {
  local join(parts) = std.join(', ', [p for p in parts if p != '']),

  // metric returns a selector of a metric of plegd: metric('pleg_verdict', 'state="unhealthy"').
  metric(name, matchers='', range='', offset='')::
    local inside = join([config.plegdSelector, matchers]);
    name + (if inside == '' then '' else '{' + inside + '}')
    + (if range == '' then '' else '[' + range + ']')
    + (if offset == '' then '' else ' offset ' + offset),

  // last is the newest sample, and for a node whose last scrape failed the one before: a missed
  // scrape ends no alert, and a reason that is over does not linger.
  last(name, matchers='')::
    '(%s or last_over_time(%s) unless on (%s) %s)' % [
      $.metric(name, matchers),
      $.metric(name, matchers, config.lookback),
      $.byInstance,
      $.metric('pleg_threshold_seconds'),
    ],

  // up selects the targets that may be plegds.
  up:: 'up' + (if config.upSelector == '' then '' else '{' + config.upSelector + '}'),

  // Labels of a job and of a plegd. Never all labels: a pod's name changes with each rollout.
  byJob:: '%s, job' % config.clusterLabel,
  byInstance:: $.byJob + ', instance',

  group(name, rules):: {
    name: name,
    [if config.interval != '' then 'interval']: config.interval,
    rules: rules,
  },

  // Templates of annotations.
  node:: '{{ or $labels.%s $labels.instance }}' % config.nodeLabel,
  // of is a template's query for a series of the same node.
  local of(name) =
    "printf \"%(name)s{%(cluster)s='%%s',job='%%s',instance='%%s'}\" $labels.%(cluster)s $labels.job $labels.instance | query"
    % { name: name, cluster: config.clusterLabel },
  local texts = import 'texts.libsonnet',
  // choose is a template with the text of each reason.
  local choose(field, other) =
    local known = [r for r in std.objectFields(texts) if std.objectHas(texts[r], field)];
    std.join('{{ else ', ['if eq $labels.reason "%s" }}%s' % [r, texts[r][field]] for r in known]) + '{{ else }}' + other + '{{ end }}',

  // cause is the culprit, or the runtime, and its fault.
  cause:: '{{ $c := "runtime" }}{{ with ' + of('pleg_culprit') + ' }}{{ $c = or (. | first | label "id") (. | first | label "kind") }}{{ end }}{{ $c }} {{ ' + choose('cause', 'is involved'),
  nextStep:: '; next: {{ ' + choose('next', 'plegd status on the node'),
  countdown:: '{{ with ' + of('pleg_not_ready_in_seconds') + ' }}; API NotReady '
              + '{{ if eq (. | first | value) 0.0 }}now{{ else }}in {{ . | first | value | humanizeDuration | reReplaceAll " " "" }}{{ end }}{{ end }}',

  runbook(page):: config.runbookBaseURL + page + config.runbookSuffix,
  // The page of the reason, or the one for a node without a reason.
  reasonRunbook:: config.runbookBaseURL + '{{ if $labels.reason }}reasons/{{ $labels.reason }}{{ else }}troubleshooting{{ end }}' + config.runbookSuffix,
}
