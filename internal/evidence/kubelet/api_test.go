package kubelet

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// kubeconfigOf is a kubeconfig with two contexts, of which the second is current.
func kubeconfigOf(server, certificate string) string {
	return fmt.Sprintf("current-context: b\ncontexts:\n- {name: a, context: {cluster: x, user: x}}\n- {name: b, context: {cluster: c, user: u}}\n"+
		"clusters:\n- {name: x, cluster: {server: 'https://192.0.2.1:1'}}\n- {name: c, cluster: {server: '%s'}}\n"+
		"users:\n- {name: u, user: {client-certificate: %s}}\n", server, certificate)
}

// TestReadClient: the server and the certificate of the current context, beside a private key
// in the same file; no message has a part of a file.
func TestReadClient(t *testing.T) {
	pair, certificatePEM := certificate(t, false, nil, "system:node:n")
	key := "-----BEGIN PRIVATE KEY-----\nczNjcmV0\n-----END PRIVATE KEY-----\n"
	for _, tt := range []struct {
		kubeconfig, certificate string
		server, problem         string
		expires                 bool
	}{
		{kubeconfigOf("https://10.0.0.1:6443", "pki/c.pem"), key + string(certificatePEM), "10.0.0.1:6443", "", true},
		{kubeconfigOf("https://api.example", "/pki/c.pem"), string(certificatePEM), "api.example:443", "", true},
		{kubeconfigOf("https://[fd00::1]:6443", "/none"), "", "[fd00::1]:6443", "no such file", false},
		{kubeconfigOf("https://10.0.0.1:6443", "pki/c.pem"), key, "10.0.0.1:6443", "no PEM certificate", false},
		{kubeconfigOf("s3cret", "pki/c.pem"), "", "", "names no server", false},
		{"s3cret: [", "", "", "not a valid kubeconfig", false},
	} {
		root := t.TempDir()
		must.Do(t, os.Mkdir(root+"/pki", 0o755))
		must.Do(t, os.WriteFile(root+"/kubeconfig", []byte(tt.kubeconfig), 0o600))
		must.Do(t, os.WriteFile(root+"/pki/c.pem", []byte(tt.certificate), 0o600))
		got, err := readClient(t.Context(), new(namedFiles), &settings{kubeconfig: "/kubeconfig", tree: place{root: root}})
		if got.server != tt.server || tt.expires != got.notAfter.Equal(pair.Leaf.NotAfter) {
			t.Errorf("%s: %+v", tt.kubeconfig, got)
		}
		if (err == nil) != (tt.problem == "") || err != nil && (!strings.Contains(err.Error(), tt.problem) || strings.Contains(err.Error(), "s3cret")) {
			t.Errorf("%s: %v, want %q", tt.kubeconfig, err, tt.problem)
		}
	}
}

// TestIssuedCertificate: the certificate in a kubeconfig may be old, and that counts which was
// issued last.
func TestIssuedCertificate(t *testing.T) {
	older, olderPEM := certificate(t, false, nil, "system:node:n")
	newer, newerPEM := certificateUntil(t, time.Now().Add(2*time.Hour), false, nil, "system:node:n")
	for name, tt := range map[string]struct {
		issued string
		want   time.Time
	}{
		"none issued":   {"", older.Leaf.NotAfter},
		"not valid":     {"s3cret", older.Leaf.NotAfter},
		"an issued one": {string(newerPEM), newer.Leaf.NotAfter},
	} {
		root := t.TempDir()
		must.Do(t, os.WriteFile(root+"/kubeconfig", []byte(kubeconfigOf("https://10.0.0.1:6443", "c.pem")), 0o600))
		must.Do(t, os.WriteFile(root+"/c.pem", olderPEM, 0o600))
		if tt.issued != "" {
			must.Do(t, os.WriteFile(root+"/"+issuedCertificate, []byte(tt.issued), 0o600))
		}
		set := &settings{kubeconfig: "/kubeconfig", certDir: "/", tree: place{root: root}}
		got, err := readClient(t.Context(), new(namedFiles), set)
		file := "/c.pem"
		if tt.want.Equal(newer.Leaf.NotAfter) {
			file = "/" + issuedCertificate
		}
		if err != nil || !got.notAfter.Equal(tt.want) || got.certificate != file {
			t.Errorf("%s: %s of %s, %v, want %s", name, got.notAfter, got.certificate, err, tt.want)
		}
	}
}

// TestAPIConnections follows the connections of this process to a server: an
// answered one, none, and one to a server that accepts nothing.
func TestAPIConnections(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	defer func() { _ = server.Close() }()
	address := netip.MustParseAddrPort(server.Addr().String())
	process := &Process{}
	process.current.Store(&settings{
		KubeletProcess: facts.KubeletProcess{PID: os.Getpid(), Started: time.Now().Add(-time.Hour), StartTicks: 7}, kubeconfig: "/k",
	})
	a := &API{
		ProcFS: "/proc", Process: process, started: 7, readAt: time.Now(),
		client: apiClient{server: address.String(), port: address.Port(), address: address.Addr()},
	}
	sample := func() *facts.KubeletAPI {
		t.Helper()
		v, err := a.Sample(t.Context())
		must.Do(t, err)
		return v
	}
	if v := sample(); v.Connections != 0 || !v.LostSince.IsZero() {
		t.Errorf("it may use a proxy: %+v", v)
	}
	conn, err := net.Dial("tcp", server.Addr().String())
	must.Do(t, err)
	if v := sample(); v.Connections != 1 || !v.LostSince.IsZero() || !v.Unproven {
		t.Errorf("with a connection: %+v", v)
	}
	_, err = conn.Write(make([]byte, 1000)) // it returns once the kernel has delivered them
	must.Do(t, err)
	for inode, c := range a.connections {
		c.seenAt = c.seenAt.Add(-staysAfter)
		a.connections[inode] = c
	}
	if v := sample(); v.Connections != 1 || !v.LostSince.IsZero() || v.Unproven || time.Since(v.AckedAt) > time.Minute {
		t.Errorf("after a request: %+v", v)
	}
	must.Do(t, conn.Close())
	lost := sample()
	if lost.Connections != 0 || lost.LostSince.IsZero() || lost.Unproven {
		t.Errorf("after it is closed: %+v", lost)
	}
	if v := sample(); !v.LostSince.Equal(lost.LostSince) {
		t.Errorf("lost since %s and then %s", lost.LostSince, v.LostSince)
	}
}

// TestAnotherKubelet: what the kubelet before reached shows that this one needs no proxy, where both have one server; and
// what it lost for long is lost until there is a connection.
func TestAnotherKubelet(t *testing.T) {
	now := time.Now()
	acked := now.Add(-time.Minute)
	for name, tt := range map[string]struct {
		server string
		loss   time.Duration
		same   bool
		lost   bool
	}{
		"the same server":          {"https://10.0.0.1:6443", 0, true, false},
		"a restart closes it":      {"https://10.0.0.1:6443", time.Second, true, false},
		"it was lost for long":     {"https://10.0.0.1:6443", time.Minute, true, true},
		"another port":             {"https://10.0.0.1:443", time.Minute, false, false},
		"another server's address": {"https://10.0.0.2:6443", time.Minute, false, false},
	} {
		root := t.TempDir()
		must.Do(t, os.WriteFile(root+"/k", []byte(kubeconfigOf(tt.server, "/none")), 0o600))
		a := &API{client: apiClient{server: "10.0.0.1:6443"}, direct: true, ackedAt: acked, sampledAt: now}
		if tt.loss > 0 {
			a.lostSince = now.Add(-tt.loss)
		}
		a.restart(t.Context(), &settings{kubeconfig: "/k", tree: place{root: root}})
		check.Equal(t, a.direct && a.ackedAt.Equal(acked), tt.same, "%s: acknowledged at %s", name, a.ackedAt)
		check.Equal(t, !a.lostSince.IsZero(), tt.lost, "%s", name)
	}
}

// TestRefusedRequests: a server that refuses each request closes its connection, but for streams that have begun before.
// A loss ends with a connection that stays and that requests go over. Each sample has the bytes that the server has
// acknowledged of each connection, by its inode.
func TestRefusedRequests(t *testing.T) {
	const s = time.Second
	began := time.Now().Add(-time.Hour)
	at := func(d time.Duration) time.Time { return began.Add(d) }
	type sample struct {
		at       time.Duration
		acked    map[uint32]uint64
		lost     time.Duration // since when, 0 while it is not
		unproven bool
	}
	for name, tt := range map[string]struct {
		set     settings
		samples []sample
	}{
		"each connection is another one": {settings{}, []sample{
			{40 * s, map[uint32]uint64{1: 1000}, 0, true}, {44 * s, map[uint32]uint64{1: 1500}, 0, false},
			{48 * s, map[uint32]uint64{2: 500}, 0, true}, {50 * s, map[uint32]uint64{3: 500}, 48 * s, true},
			{51 * s, map[uint32]uint64{3: 500}, 48 * s, true}, {52 * s, nil, 48 * s, false},
			{60 * s, map[uint32]uint64{4: 500, 5: 500}, 48 * s, true}, {62 * s, map[uint32]uint64{5: 900}, 0, false},
		}},
		"another connection once": {settings{}, []sample{
			{40 * s, map[uint32]uint64{1: 1000}, 0, true}, {44 * s, map[uint32]uint64{1: 1500}, 0, false},
			{48 * s, map[uint32]uint64{2: 500}, 0, true}, {50 * s, map[uint32]uint64{2: 900}, 0, false},
		}},
		"a watch goes on, with pings": {settings{}, []sample{
			{40 * s, map[uint32]uint64{1: 1000}, 0, true}, {44 * s, map[uint32]uint64{1: 1500}, 0, false},
			{54 * s, map[uint32]uint64{1: 1540}, 0, false}, {64 * s, map[uint32]uint64{1: 1580}, 0, false},
			{66 * s, map[uint32]uint64{1: 1580}, 44 * s, false}, {67 * s, map[uint32]uint64{1: 1580, 2: 500}, 44 * s, true},
			{96 * s, map[uint32]uint64{1: 1620}, 44 * s, false}, {97 * s, map[uint32]uint64{1: 1620, 3: 500}, 44 * s, true},
			{99 * s, map[uint32]uint64{1: 1620, 3: 900}, 0, false},
		}},
		"a lease that is renewed each 30 s": {settings{lease: 2 * time.Minute}, []sample{
			{40 * s, map[uint32]uint64{1: 1000}, 0, true}, {44 * s, map[uint32]uint64{1: 1500}, 0, false},
			{74 * s, map[uint32]uint64{1: 1540}, 0, false}, {106 * s, map[uint32]uint64{1: 1580}, 0, false}, {107 * s, map[uint32]uint64{1: 1580}, 44 * s, false},
		}},
		"the kubelet's files cannot be read": {settings{KubeletProcess: facts.KubeletProcess{Problem: "denied"}}, []sample{
			{40 * s, map[uint32]uint64{1: 1000}, 0, true}, {44 * s, map[uint32]uint64{1: 1500}, 0, false}, {200 * s, map[uint32]uint64{1: 1500}, 0, false},
		}},
		"the kernel does not count": {settings{}, []sample{
			{40 * s, map[uint32]uint64{1: 0}, 0, true}, {44 * s, map[uint32]uint64{1: 0}, 0, false}, {200 * s, map[uint32]uint64{1: 0}, 0, false},
		}},
		"refused from its start": {settings{}, []sample{
			{2 * s, nil, 0, false}, {6 * s, map[uint32]uint64{1: 500}, 0, true}, {10 * s, nil, 0, true}, {14 * s, nil, 0, true},
			{16 * s, nil, 2 * s, false},
		}},
	} {
		a := &API{}
		tt.set.Started = began
		for _, sample := range tt.samples {
			var found []proc.TCPSocket
			for inode, acked := range sample.acked {
				found = append(found, proc.TCPSocket{State: proc.Established, Inode: inode, Acked: acked})
			}
			out := &facts.KubeletAPI{At: at(sample.at)}
			a.follow(found, out, &tt.set)
			want := time.Time{}
			if sample.lost > 0 {
				want = at(sample.lost)
			}
			if !out.LostSince.Equal(want) || out.Unproven != sample.unproven {
				t.Errorf("%s: second %v: lost since %s, want %s, unproven %t", name, sample.at.Seconds(), out.LostSince.Sub(began), sample.lost, out.Unproven)
			}
		}
	}
}

// TestFollowConnections: a connection that is sent again without an answer does not work, nor
// an unaccepted one; a single working connection is enough.
func TestFollowConnections(t *testing.T) {
	good := proc.TCPSocket{State: proc.Established, Unacked: 100, LastAck: time.Second}
	stalled := proc.TCPSocket{State: proc.Established, Unacked: 2000, Retransmits: 9, LastAck: 25 * time.Second}
	noRoute := proc.TCPSocket{State: proc.Established, Unacked: 500, LastAck: silentAfter}
	idle := proc.TCPSocket{State: proc.Established, LastAck: time.Minute}
	connecting := proc.TCPSocket{State: proc.SynSent, Retransmits: 3}
	long := time.Now().Add(-time.Hour)
	var never time.Time
	for name, tt := range map[string]struct {
		found   []proc.TCPSocket
		started time.Time
		acked   time.Time // by then
		lost    bool
	}{
		"answered":                               {[]proc.TCPSocket{good}, long, never, false},
		"stalled":                                {[]proc.TCPSocket{stalled}, long, never, true},
		"no route, so none again":                {[]proc.TCPSocket{noRoute}, long, never, true},
		"nothing to acknowledge":                 {[]proc.TCPSocket{idle}, long, never, false},
		"stalled, and reconnects":                {[]proc.TCPSocket{stalled, connecting}, long, never, true},
		"one of two is answered":                 {[]proc.TCPSocket{stalled, good}, long, never, false},
		"not accepted":                           {[]proc.TCPSocket{connecting}, long, never, true},
		"none, as behind a proxy":                {nil, long, never, false},
		"it has just started":                    {nil, time.Now(), never, false},
		"none, where the kubelet before had one": {nil, long, long.Add(-time.Second), true},
		"connecting, as the kubelet before":      {[]proc.TCPSocket{connecting}, time.Now(), long, false},
		"just started, the one before had one":   {nil, time.Now(), long, false},
	} {
		a, out := &API{ackedAt: tt.acked, direct: !tt.acked.IsZero()}, &facts.KubeletAPI{At: time.Now()}
		a.follow(tt.found, out, &settings{KubeletProcess: facts.KubeletProcess{Started: tt.started}})
		if out.LostSince.IsZero() == tt.lost {
			t.Errorf("%s: %+v", name, out)
		}
	}
}
