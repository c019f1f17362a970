package exporter

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// processCollector makes the process_* metrics that every Go exporter has. The
// client library's own collector took a third of a scrape: it has the kernel print
// /proc/stat with every interrupt of the node for a start time that stays the same,
// and reads with regular expressions what getrusage(2) and getrlimit(2) return.
type processCollector struct {
	self  procfs.Proc
	start float64

	// netstat stays open: the kernel prints it into a page at first, which is too
	// small, and then once more into the two that an open file keeps.
	netstat *os.File
	mu      sync.Mutex
	text    [16 << 10]byte // guarded by mu: of netstat, 4 KiB are usual

	cpu, openFDs, maxFDs, virtual, maxVirtual, resident, startTime, received, sent *prometheus.Desc
}

// newProcessCollector returns a collector over this process; the error is that of
// reading its files.
func newProcessCollector() (*processCollector, error) {
	desc := func(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, nil, nil) }
	c := &processCollector{
		cpu:        desc("process_cpu_seconds_total", "Total user and system CPU time spent in seconds."),
		openFDs:    desc("process_open_fds", "Number of open file descriptors."),
		maxFDs:     desc("process_max_fds", "Maximum number of open file descriptors."),
		virtual:    desc("process_virtual_memory_bytes", "Virtual memory size in bytes."),
		maxVirtual: desc("process_virtual_memory_max_bytes", "Maximum amount of virtual memory available in bytes."),
		resident:   desc("process_resident_memory_bytes", "Resident memory size in bytes."),
		startTime:  desc("process_start_time_seconds", "Start time of the process since unix epoch in seconds."),
		received:   desc("process_network_receive_bytes_total", "Number of bytes received by the process over the network."),
		sent:       desc("process_network_transmit_bytes_total", "Number of bytes sent by the process over the network."),
	}
	self, err := procfs.NewProc(os.Getpid())
	if err != nil {
		return nil, err
	}
	stat, err := self.Stat()
	if err != nil {
		return nil, err
	}
	c.self = self
	if c.start, err = stat.StartTime(); err != nil {
		return nil, err
	}
	c.netstat, _ = os.Open("/proc/self/net/netstat") // without it only those two are absent
	return c, nil
}

// Describe sends the descriptions of all metrics.
func (c *processCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.cpu, c.openFDs, c.maxFDs, c.virtual, c.maxVirtual, c.resident, c.startTime, c.received, c.sent} {
		ch <- d
	}
}

// Collect sends what can be read; the rest is absent.
func (c *processCollector) Collect(ch chan<- prometheus.Metric) {
	send := func(t prometheus.ValueType, d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, t, v)
	}
	send(prometheus.GaugeValue, c.startTime, c.start)
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err == nil {
		send(prometheus.CounterValue, c.cpu, seconds(used.Utime)+seconds(used.Stime))
	}
	if m, err := c.self.Statm(); err == nil {
		send(prometheus.GaugeValue, c.virtual, float64(m.SizeBytes()))
		send(prometheus.GaugeValue, c.resident, float64(m.ResidentBytes()))
	}
	if n, err := c.self.FileDescriptorsLen(); err == nil {
		send(prometheus.GaugeValue, c.openFDs, float64(n))
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil {
		send(prometheus.GaugeValue, c.maxFDs, float64(limit.Cur))
	}
	if err := unix.Getrlimit(unix.RLIMIT_AS, &limit); err == nil {
		send(prometheus.GaugeValue, c.maxVirtual, float64(limit.Cur))
	}
	if received, sent, err := c.networkBytes(); err == nil {
		send(prometheus.CounterValue, c.received, received)
		send(prometheus.CounterValue, c.sent, sent)
	}
}

func seconds(t unix.Timeval) float64 { return float64(t.Nano()) / 1e9 }

// networkBytes returns what the network namespace has received and sent.
func (c *processCollector) networkBytes() (received, sent float64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.netstat.ReadAt(c.text[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, 0, err
	}
	return parseNetworkBytes(c.text[:n])
}

// parseNetworkBytes finds InOctets and OutOctets of IpExt: a line of names, and
// below it one of values.
func parseNetworkBytes(netstat []byte) (received, sent float64, err error) {
	_, ipExt, _ := bytes.Cut(netstat, []byte("IpExt:"))
	header, values, _ := bytes.Cut(ipExt, []byte("IpExt:"))
	values, _, _ = bytes.Cut(values, []byte("\n"))
	names, value := bytes.Fields(header), bytes.Fields(values)
	octets := func(name string) (float64, error) {
		i := slices.IndexFunc(names, func(b []byte) bool { return string(b) == name })
		if i < 0 || i >= len(value) {
			return 0, fmt.Errorf("netstat has no %s", name)
		}
		return strconv.ParseFloat(string(value[i]), 64)
	}
	if received, err = octets("InOctets"); err != nil {
		return 0, 0, err
	}
	sent, err = octets("OutOctets")
	return received, sent, err
}
