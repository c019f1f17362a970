// Everything that a fleet may want to change. Override a field in a file of your own:
//
//   (import 'mixin.libsonnet') + {_config+:: {nodeLabel: 'kubernetes_node', runbookBaseURL: 'https://wiki.example.org/'}}
{
  _config:: {
    // Label matchers for every metric of plegd, as in 'cluster="a"'. plegd's metric names are
    // its own, so that none is needed where one Prometheus watches one fleet.
    plegdSelector: '',

    // Label matchers for `up`, for a job that plegd shares with other programs. With the
    // default the rules take every job in which each target that answers is a plegd,
    // under any name: plegd, plegd/plegd, kube-system/plegd.
    upSelector: '',

    // Labels of a cluster and of a node. Either may be missing from the metrics: then all
    // nodes are one cluster, and a node has the name of its instance. `instance` must be
    // unique for each node in a job.
    clusterLabel: 'cluster',
    nodeLabel: 'node',

    // A runbook is at runbookBaseURL + page + runbookSuffix; the pages are those of docs/.
    runbookBaseURL: 'https://github.com/plegd/plegd/blob/main/docs/',
    runbookSuffix: '.md',

    // Labels of every alert, for the routes of your Alertmanager.
    alertLabels: {},

    // How often the rules are evaluated; empty: the server's evaluation_interval. No longer
    // than the scrape interval.
    interval: '',
    // How old a node's newest sample may be: two scrape intervals. With less a sample that is
    // late, as by remote write, ends an alert or begins its `for` again.
    lookback: '1m',

    // When something is wrong.
    notReadySoonSeconds: 60,  // PLEGUnhealthy: time left
    lastSeenCritical: '2 / 3',  // PLEGUnhealthy: age of the last relist, part of the threshold
    fdsUsedRatio: 0.5,  // PLEGFDsRunningOut: from where on growth counts
    fdsHours: 4,  // PLEGFDsRunningOut: time left by the growth
    oldAgeSeconds: 10,  // recorded age of single nodes: only above this

    // What broken nodes may share: labels of pleg_node_info, and labels of kube_node_labels
    // (kube-state-metrics, --metric-labels-allowlist=nodes=[...]) by the name to show. Where
    // kube_node_labels is absent they are skipped.
    groupLabels: ['runtime_version', 'kernel_version', 'os_image', 'plegd_version', 'runtime_name', 'cgroup_version'],
    kubeNodeLabels: { zone: 'label_topology_kubernetes_io_zone', instance_type: 'label_node_kubernetes_io_instance_type' },
    // PLEGFleetCommonCause: at least so many nodes and this share of a group have had one
    // reason for `hold` within `window`, the group explains so much of all nodes with the
    // reason, with this lift over the rest. evidence keeps chance away: 12 is one in 160,000
    // for one group.
    commonCause: { nodes: 5, share: '0.03', explained: '0.8', lift: 5, evidence: 12, window: '30m', hold: '1m' },

    // How long plegd must have had metrics before a node pages: a node that boots may have
    // its runtime later than plegd.
    bootGrace: '150s',
    // How long the rules remember a job or a cluster whose plegds are gone.
    memory: '6h',

    // How long something must be wrong before an alert fires. The others fire at once: their
    // rules have their own times.
    delays: { PLEGReasonWarning: '15m', PLEGFDsRunningOut: '30m', PlegdBlind: '5m', PlegdDown: '10m', PlegdAbsent: '10m' },

    // Severity of each alert that is not a warning.
    severities: { PLEGUnhealthy: 'critical', PLEGFleetCommonCause: 'critical', PLEGNodeInFleetFault: 'none' },

    dashboardTags: ['plegd', 'kubernetes'],
    overviewUID: 'plegd-overview', nodeUID: 'plegd-node', fleetUID: 'plegd-fleet',
  },
}
