package exporter

import (
	"math"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// TestProcessCollector: the metrics are those of the client library, and their
// values what it reads.
func TestProcessCollector(t *testing.T) {
	own, err := newProcessCollector()
	if err != nil {
		t.Fatal(err)
	}
	reg, library := prometheus.NewPedanticRegistry(), prometheus.NewPedanticRegistry()
	reg.MustRegister(own)
	library.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	gather(t, reg) // the second time it reads a file that is open
	got, want := gather(t, reg), gather(t, library)
	if len(got) != len(want) {
		t.Errorf("%d metrics, want %d", len(got), len(want))
	}
	// How far two readings, one after the other, may be apart.
	apart := map[string]float64{
		"process_cpu_seconds_total":            1,
		"process_virtual_memory_bytes":         256 << 20,
		"process_resident_memory_bytes":        64 << 20,
		"process_open_fds":                     8,
		"process_network_receive_bytes_total":  64 << 20,
		"process_network_transmit_bytes_total": 64 << 20,
	}
	for name, w := range want {
		g := got[name]
		if g.GetType() != w.GetType() || g.GetHelp() != w.GetHelp() {
			t.Errorf("%s: %v %q, want %v %q", name, g.GetType(), g.GetHelp(), w.GetType(), w.GetHelp())
			continue
		}
		a, _ := value(got, name)
		b, _ := value(want, name)
		if math.Abs(a-b) > apart[name] {
			t.Errorf("%s is %v, want %v", name, a, b)
		}
	}
}

// TestProcessWithoutNetwork: where netstat cannot be opened the other metrics are there.
func TestProcessWithoutNetwork(t *testing.T) {
	c, err := newProcessCollector()
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(c)
	all := len(gather(t, reg))
	_ = c.netstat.Close()
	c.netstat = nil
	if n := len(gather(t, reg)); n != all-2 {
		t.Errorf("%d metrics, want %d", n, all-2)
	}
}

func TestParseNetworkBytes(t *testing.T) {
	const tcp = "TcpExt: SyncookiesSent InOctets\nTcpExt: 1 2\n"
	for _, tt := range []struct {
		name, text     string
		received, sent float64
		wantErr        bool
	}{
		{name: "both", text: tcp + "IpExt: InNoRoutes InOctets OutOctets\nIpExt: 0 23500308391 21887769851\n", received: 23500308391, sent: 21887769851},
		{name: "another order", text: "IpExt: OutOctets InOctets InNoRoutes\nIpExt: 7 8 9\n", received: 8, sent: 7},
		{name: "not there", text: tcp, wantErr: true},
		{name: "cut off", text: tcp + "IpExt: InOctets OutOctets\nIpExt: 5", wantErr: true},
		{name: "no number", text: "IpExt: InOctets OutOctets\nIpExt: 5 x\n", wantErr: true},
		{name: "empty", wantErr: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			received, sent, err := parseNetworkBytes([]byte(tt.text))
			if (err != nil) != tt.wantErr {
				t.Fatalf("error %v", err)
			}
			if err == nil && (received != tt.received || sent != tt.sent) {
				t.Errorf("%v and %v, want %v and %v", received, sent, tt.received, tt.sent)
			}
		})
	}
}
