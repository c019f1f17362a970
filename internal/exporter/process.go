package exporter

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// processCollector tells the usual process_* of plegd itself. client_golang's
// collector reads /proc/stat and /proc/self/net/netstat in each scrape, for a
// start time that never changes and for bytes that are the node's, not
// plegd's: a quarter of what a scrape cost, and more the more CPUs there are. CPU
// time and memory come from getrusage(2) and /proc/self/statm, which cost a third
// of /proc/self/stat.
type processCollector struct {
	cpu, openFDs, maxFDs, virtual, maxVirtual, resident, start *prometheus.Desc

	self    *procfs.Proc // nil without a /proc
	started float64      // Unix time, 0 when unknown
}

func newProcessCollector() *processCollector {
	desc := func(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, nil, nil) }
	c := &processCollector{
		cpu:        desc("process_cpu_seconds_total", "Total user and system CPU time spent in seconds."),
		openFDs:    desc("process_open_fds", "Number of open file descriptors."),
		maxFDs:     desc("process_max_fds", "Maximum number of open file descriptors."),
		virtual:    desc("process_virtual_memory_bytes", "Virtual memory size in bytes."),
		maxVirtual: desc("process_virtual_memory_max_bytes", "Maximum amount of virtual memory available in bytes."),
		resident:   desc("process_resident_memory_bytes", "Resident memory size in bytes."),
		start:      desc("process_start_time_seconds", "Start time of the process since unix epoch in seconds."),
	}
	if p, err := procfs.Self(); err == nil {
		c.self = &p
		if stat, err := p.Stat(); err == nil {
			c.started, _ = stat.StartTime()
		}
	}
	return c
}

// Describe sends what there may be.
func (c *processCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.cpu, c.openFDs, c.maxFDs, c.virtual, c.maxVirtual, c.resident, c.start} {
		ch <- d
	}
}

// Collect sends what can be read; the rest is absent.
func (c *processCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64) { ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	if c.started > 0 {
		gauge(c.start, c.started)
	}
	var used unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &used) == nil {
		seconds := float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
		ch <- prometheus.MustNewConstMetric(c.cpu, prometheus.CounterValue, seconds)
	}
	if c.self != nil {
		if m, err := c.self.Statm(); err == nil {
			gauge(c.virtual, float64(m.SizeBytes()))
			gauge(c.resident, float64(m.ResidentBytes()))
		}
		if n, err := c.self.FileDescriptorsLen(); err == nil {
			gauge(c.openFDs, float64(n))
		}
	}
	for what, d := range map[int]*prometheus.Desc{unix.RLIMIT_NOFILE: c.maxFDs, unix.RLIMIT_AS: c.maxVirtual} {
		var limit unix.Rlimit
		if unix.Getrlimit(what, &limit) == nil {
			gauge(d, float64(limit.Cur))
		}
	}
}
