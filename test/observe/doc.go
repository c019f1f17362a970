// Package observe runs what an operator looks at for real: Prometheus with the rules of deploy/prometheus,
// Alertmanager with its configuration, and the queries of the dashboard, against several plegds beside fake runtimes
// that fail in different ways. `make e2e-observe` runs it.
package observe
