// Three dashboards: the fleet and what its broken nodes share, which read recorded series only,
// so that they open at thousands of nodes; and one node.
{
  local config = $._config,

  grafanaDashboards+:: {
    'plegd-overview.json': (import 'dashboards/overview.libsonnet')(config),
    'plegd-fleet.json': (import 'dashboards/fleet.libsonnet')(config),
    'plegd-node.json': (import 'dashboards/node.libsonnet')(config),
  },
}
