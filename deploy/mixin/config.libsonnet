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
    // whatever it is called: plegd, plegd/plegd, kube-system/plegd.
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
    notReadySoonSeconds: 60,  // PLEGNotReadySoon: time left
    lastSeenCritical: '2 / 3',  // PLEGLastSeenTooOld: part of the threshold in force
    lastSeenWarning: '1 / 6',  // PLEGLastSeenOld: part of the threshold, after the next relist was due
    relistSlowSeconds: 10,  // PLEGRelistSlow: 99th percentile at the kubelet's pace
    responseNearLimitRatio: 0.8,  // PLEGResponseNearLimit
    fdsUsedRatio: 0.5,  // PLEGFDsRunningOut: from where on growth counts
    fdsHours: 4,  // PLEGFDsRunningOut: time left by the growth
    restartsPerHour: 3,  // PlegdRestarting
    manyNodes: 3,  // PLEGReasonOnManyNodes: at least so many nodes ...
    manyNodesRatio: 0.02,  // ... and this part of the cluster
    oldAgeSeconds: 10,  // recorded age of single nodes: only above this

    // How long plegd must have had metrics before a node pages: a node that boots may have
    // its runtime later than plegd.
    bootGrace: '150s',
    // How long the rules remember a job or a cluster whose plegds are gone.
    memory: '6h',

    // How long something must be wrong before the alert fires. '' is at once.
    delays: {
      PLEGUnhealthy: '',
      PLEGNotReadySoon: '',
      PLEGLastSeenTooOld: '',
      PLEGLastSeenOld: '90s',
      PLEGNeverSeen: '10m',
      PLEGReasonCritical: '2m',
      PLEGReasonWarning: '15m',
      PLEGKubeletStalled: '3m',
      PLEGRelistSlow: '10m',
      PLEGAcceptFailing: '6m',
      PLEGFDsRunningOut: '30m',
      PLEGResponseNearLimit: '10m',
      PLEGReasonOnManyNodes: '',
      PLEGNodeInFleetFault: '',
      PlegdDown: '10m',
      PlegdRestarting: '',
      PlegdEvidenceMissing: '30m',
      PlegdAbsent: '10m',
    },

    // Severity of each alert that is not a warning.
    severities: {
      PLEGUnhealthy: 'critical',
      PLEGNotReadySoon: 'critical',
      PLEGLastSeenTooOld: 'critical',
      PLEGReasonCritical: 'critical',
      PLEGKubeletStalled: 'critical',
      PLEGReasonOnManyNodes: 'critical',
      PLEGNodeInFleetFault: 'none',
    },

    dashboardTags: ['plegd', 'kubernetes'],
    overviewUID: 'plegd-overview',
    nodeUID: 'plegd-node',
  },
}
