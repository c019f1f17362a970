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
	if v := sample(); v.Connections != 1 || !v.LostSince.IsZero() || time.Since(v.AckedAt) > time.Minute {
		t.Errorf("with a connection: %+v", v)
	}
	must.Do(t, conn.Close())
	lost := sample()
	if lost.Connections != 0 || lost.LostSince.IsZero() || lost.AckedAt.IsZero() {
		t.Errorf("after it is closed: %+v", lost)
	}
	if v := sample(); !v.LostSince.Equal(lost.LostSince) {
		t.Errorf("lost since %s and then %s", lost.LostSince, v.LostSince)
	}
}

// TestAnotherKubelet: what the kubelet before reached shows that this one needs no proxy, where both have one server.
func TestAnotherKubelet(t *testing.T) {
	acked := time.Now().Add(-time.Minute)
	for server, want := range map[string]time.Time{"https://10.0.0.1:6443": acked, "https://10.0.0.1:443": {}, "https://10.0.0.2:6443": {}} {
		root := t.TempDir()
		must.Do(t, os.WriteFile(root+"/k", []byte(kubeconfigOf(server, "/none")), 0o600))
		a := &API{client: apiClient{server: "10.0.0.1:6443"}, ackedAt: acked, lostSince: acked}
		a.restart(t.Context(), &settings{kubeconfig: "/k", tree: place{root: root}})
		check.Equal(t, a.ackedAt, want, "%s", server)
		check.Equal(t, a.lostSince.IsZero(), true, "%s: nothing is lost yet", server)
	}
}

// TestRefusedRequests: a server that refuses each request closes its connections, so that a loss ends with one that stays.
func TestRefusedRequests(t *testing.T) {
	started := time.Now().Add(-time.Hour)
	a := &API{ackedAt: started.Add(time.Minute)}
	for i, tt := range []struct {
		inodes []uint32
		lost   bool
	}{{[]uint32{1}, false}, {[]uint32{2}, false}, {nil, true}, {[]uint32{3}, true}, {[]uint32{4, 5}, true}, {[]uint32{5}, false}, {[]uint32{6}, false}} {
		var found []proc.TCPSocket
		for _, inode := range tt.inodes {
			found = append(found, proc.TCPSocket{State: proc.Established, Inode: inode})
		}
		out := &facts.KubeletAPI{At: time.Now()}
		a.follow(found, out, started)
		check.Equal(t, !out.LostSince.IsZero(), tt.lost, "sample %d", i)
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
		a, out := &API{ackedAt: tt.acked}, &facts.KubeletAPI{At: time.Now()}
		a.follow(tt.found, out, tt.started)
		if out.LostSince.IsZero() == tt.lost {
			t.Errorf("%s: %+v", name, out)
		}
	}
}
