package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/crypto/bcrypt"
	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/view"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
	"github.com/plegd/plegd/test/viewtest"
)

// probeRounds of probeInterval are a shorter time than each attack below made a probe wait
// without a gate. Beside other load a round takes longer, as the probe does.
const (
	probeRounds   = 30
	probeInterval = 100 * time.Millisecond
	probeTries    = 3 // the default failureThreshold of a probe
)

// TestHealthIsReserved: health probes and the scrapes of a client that has logged in before are
// answered beside clients that occupy connections and check passwords.
func TestHealthIsReserved(t *testing.T) {
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.DefaultCost)
	must.Do(t, err)
	var limit unix.Rlimit
	must.Do(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	control := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer control.Close()
	for _, tt := range []struct {
		name    string
		attack  func(ctx context.Context, address string)
		refuses bool
	}{
		{"idle connections", func(ctx context.Context, address string) {
			for range min(3_000, int(limit.Cur)/2) {
				_ = hold(ctx, address, "")
			}
		}, true},
		{"silent connections, 130 a second", func(ctx context.Context, address string) {
			go func() {
				for tick := time.Tick(time.Second / 130); ctx.Err() == nil; <-tick {
					_ = hold(ctx, address, "")
				}
			}()
		}, true},
		{"headers that do not end", func(ctx context.Context, address string) {
			for range 2 * maxYoungConns {
				_ = hold(ctx, address, "GET / HTTP/1.1\r\nHost:")
			}
		}, true},
		{"readers that do not read", func(ctx context.Context, address string) {
			for range 2 * maxYoungConns {
				_ = hold(ctx, address, strings.Repeat("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 4000))
			}
		}, false},
		{"wrong passwords, 60 at a time", func(ctx context.Context, address string) {
			for i := range 60 {
				go func() {
					for n := 0; ctx.Err() == nil; n++ {
						request, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/", http.NoBody)
						request.SetBasicAuth("prometheus", fmt.Sprint(i, n))
						if response, err := http.DefaultTransport.RoundTrip(request); err == nil {
							_ = response.Body.Close()
						}
					}
				}()
			}
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			t.Cleanup(func() {
				http.DefaultTransport.(*http.Transport).CloseIdleConnections()
				eventually(t, "the last password is checked", func() bool { return goleak.Find(before) == nil })
			})
			file := filepath.Join(t.TempDir(), "web.yml")
			write(t, file, "basic_auth_users:\n  prometheus: "+string(hash)+"\n")
			log := newLogRecorder()
			var refused atomic.Int64
			l := listen(t)
			h := testHandler(viewtest.NewSource(viewtest.Healthy()), false)
			start(t, NewWebServer(nil, []net.Listener{l}, file, h, nobody, func() { refused.Add(1) }, log.log))
			scrape := "http://prometheus:secret@" + l.Addr().String() + view.PathMetrics
			// The first check of the password may take longer than a response on a loaded machine; its result stays.
			eventually(t, "a client has logged in", func() bool { return ask(t.Context(), scrape) == nil })
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			tt.attack(ctx, l.Addr().String())
			for range 2 {
				for _, path := range []string{view.PathHealthy, view.PathReady, view.PathHealthz} {
					probe(t, "http://"+l.Addr().String()+path, control.URL)
				}
				probe(t, scrape, control.URL)
			}
			if tt.refuses {
				eventually(t, "a refused connection", func() bool { return refused.Load() > 0 })
			}
			if n := log.count("too many connections"); n > 1 || (n == 0) != (refused.Load() == 0) {
				t.Errorf("%d refused connections, logged:\n%s", refused.Load(), log)
			}
		})
	}
}

// hold opens a connection until ctx is done, writes to it and reads nothing.
func hold(ctx context.Context, address, request string) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	if request != "" {
		go func() { _, _ = io.WriteString(conn, request) }()
	}
	return nil
}

// probe asks over a connection of its own, and again after an error, as the kubelet does before it
// restarts a pod. It waits for the time of probeRounds at control, a server that nobody attacks.
func probe(t *testing.T, url, control string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for range probeRounds {
			if !bounded.Sleep(ctx, probeInterval) {
				return
			}
			_ = ask(ctx, control)
		}
		cancel()
	}()
	err := ask(ctx, url)
	for tries := 1; err != nil && tries < probeTries && ctx.Err() == nil; tries++ {
		err = ask(ctx, url)
	}
	check.NoError(t, err, "a probe")
}

// ask returns why a URL has no answer, or an answer that is no success.
func ask(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return err
}

// TestPipelinedRequests: requests that are sent at once on one connection are answered at the pace of
// the client's limit.
func TestPipelinedRequests(t *testing.T) {
	l := listen(t)
	startWeb(t, "", nil, l)
	conn, err := net.Dial("tcp", l.Addr().String())
	must.Do(t, err)
	defer conn.Close()
	begun := time.Now()
	go func() { _, _ = io.WriteString(conn, strings.Repeat("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 4000)) }()
	first := make([]byte, len("HTTP/1.1 200"))
	_, err = io.ReadFull(conn, first)
	must.Do(t, err)
	must.Do(t, conn.SetReadDeadline(time.Now().Add(time.Second)))
	rest, _ := io.ReadAll(conn) // until the deadline
	passed := time.Since(begun)
	most := requestBurst + int(requestRate*passed.Seconds()) + int(passed/refusalDelay) + 2
	if n := strings.Count(string(first)+string(rest), "HTTP/1.1 200"); n == 0 || n > most {
		t.Errorf("%d pipelined requests were answered in %s, want at most %d", n, passed, most)
	}
}

// TestRequestLimits: a trusted client is not slowed down, another one has its burst, and the list
// of clients is bounded.
func TestRequestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		root, limit := &limits{trusted: FullAccess}, &limits{trusted: nobody}
		attacker, other := clientOf("192.0.2.1:1"), clientOf("192.0.2.2:1")
		allowed := 0
		for range 10 * requestBurst {
			if root.slow(r) {
				t.Fatal("a trusted client is slowed down")
			}
			if limit.allow(attacker) {
				allowed++
			}
		}
		check.Equal(t, allowed, requestBurst, "requests of one client at once")
		check.Equal(t, limit.allow(other), true, "another client is answered")
		for n := range 2 * maxLimiters {
			limit.allow(clientOf(fmt.Sprintf("10.0.%d.%d:1", n/256, n%256)))
		}
		if len(limit.limiters) > maxLimiters {
			t.Errorf("%d clients are remembered", len(limit.limiters))
		}
	})
}

// TestVictim: the client with the most connections loses one, without a request and the oldest
// first.
func TestVictim(t *testing.T) {
	const attacker, victim = "192.0.2.1:1", "[2001:db8::1]:1"
	for _, tt := range []struct {
		name   string
		counts map[string]int // of silent connections by client
		active string         // client whose connections have requests
		client string         // opens one more
		want   string         // client that loses one; empty: none
	}{
		{"below the limits", map[string]int{attacker: maxClientConns - 1}, "", attacker, ""},
		{"a client's limit", map[string]int{attacker: maxClientConns, victim: 1}, "", attacker, attacker},
		{"all answer for a moment", map[string]int{attacker + "0": maxClientConns}, attacker + "0", attacker + "0", ""},
		{"a client's limit, all active", map[string]int{attacker: maxClientConns, victim: 1}, attacker, attacker, attacker},
		{"the limit of all", map[string]int{attacker: maxClientConns - 1, "192.0.2.2:1": maxClientConns - 2, victim: 3}, attacker, victim, attacker},
		{"other addresses of a network", map[string]int{"[2001:db8::2]:1": maxClientConns}, "", victim, victim},
		{"a burst of short requests", map[string]int{attacker + "0": maxYoungConns - 1}, "", attacker, ""},
		{"a large burst", map[string]int{attacker + "0": maxYoungConns}, "", victim, attacker},
		{"addresses of loopback", map[string]int{"127.0.0.9:1": maxClientConns}, "", "[::1]:1", "127.0.0.1:1"},
	} {
		g := &gate{conns: map[*gateConn]struct{}{}}
		oldest := map[netip.Prefix]*gateConn{}
		for client, n := range tt.counts {
			for i := range n {
				c := &gateConn{client: clientOf(client), changedAt: time.Unix(int64(i), 0), active: client == tt.active}
				if client == attacker+"0" { // within its grace time, however long the test takes
					c.changedAt = time.Now().Add(time.Hour + time.Duration(i))
				}
				g.conns[c] = struct{}{}
				if i == 0 {
					oldest[c.client] = c
				}
			}
		}
		var want *gateConn
		if tt.want != "" {
			want = oldest[clientOf(tt.want)]
		}
		check.Equal(t, g.victim(clientOf(tt.client)), want, "%s", tt.name)
	}
	silent, active := &gateConn{changedAt: time.Unix(2, 0)}, &gateConn{changedAt: time.Unix(1, 0), active: true}
	check.Equal(t, oldest([]*gateConn{active, silent}), silent, "a request is being answered")
}

// TestVictimHasAsked: a request that nobody has read yet, or whose first byte has been read, makes
// its connection new again, once.
func TestVictimHasAsked(t *testing.T) {
	l := listen(t)
	open := func(request string) *gateConn {
		must.Do(t, hold(t.Context(), l.Addr().String(), request))
		conn, err := l.Accept()
		must.Do(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return &gateConn{Conn: conn, changedAt: time.Unix(1, 0)}
	}
	probe := open("GET /healthz HTTP/1.1\r\n")
	eventually(t, "the request has come", probe.unread)
	silent := open("")
	silent.changedAt = time.Unix(2, 0)
	check.Equal(t, oldest([]*gateConn{probe, silent}), silent, "the request is unread")
	silent.changedAt = time.Now().Add(time.Hour)
	check.Equal(t, oldest([]*gateConn{probe, silent}), probe, "it has been new again already")
}

// TestPasswords: results are remembered, a client waits for one check, and the queue is bounded.
func TestPasswords(t *testing.T) {
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	must.Do(t, err)
	p := newPasswords()
	good := credentials{user: "a", password: "secret", hash: string(hash)}
	bad := credentials{user: "a", password: "guess", hash: string(hash)}
	unknown := credentials{user: "b", password: "fakepassword", cost: bcrypt.MinCost}
	client := func(n int) netip.Prefix { return clientOf(fmt.Sprintf("192.0.2.%d:1", n)) }
	for c, want := range map[credentials]error{good: nil, bad: errWrongPassword, unknown: errWrongPassword} {
		if err := p.check(t.Context(), client(0), c); !errors.Is(err, want) {
			t.Errorf("%+v: %v, want %v", c, err, want)
		}
	}
	p.comparing <- struct{}{} // a comparison that takes long
	check.NoError(t, p.check(t.Context(), client(0), good), "the right password beside another check")
	var waiting sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for n := range maxPasswordQueue {
		waiting.Go(func() { _ = p.check(ctx, client(n), credentials{password: fmt.Sprint(n)}) })
	}
	eventually(t, "a full queue", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.waiting) == maxPasswordQueue
	})
	for _, n := range []int{0, 200} {
		if err := p.check(t.Context(), client(n), credentials{password: "another"}); !errors.Is(err, errPasswordsBusy) {
			t.Errorf("client %d: %v", n, err)
		}
	}
	cancel()
	waiting.Wait()
	for n := range byte(200) {
		p.remember([32]byte{n})
	}
	if len(p.right) > maxKnownRight {
		t.Errorf("%d passwords are remembered", len(p.right))
	}
}

// TestPasswordCost: the work of a comparison does not depend on the user, in a file whose hashes
// differ in their costs, too.
func TestPasswordCost(t *testing.T) {
	dir := t.TempDir()
	for _, costs := range [][]int{{12}, {4, 5, 12}, {10, 10}} {
		file := filepath.Join(dir, "web.yml")
		text := "basic_auth_users:\n"
		for i, cost := range costs {
			text += fmt.Sprintf("  user%d: "+fillerHash+"\n", i, cost)
		}
		write(t, file, text)
		s, err := readWebSettings(file, nil)
		must.Do(t, err)
		for user := range len(costs) + 1 { // the last one is unknown
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			r.SetBasicAuth(fmt.Sprintf("user%d", user), "guess")
			work := 0
			for _, hash := range s.credentials(r).hashes() {
				cost, err := bcrypt.Cost([]byte(hash))
				must.Do(t, err)
				work += 1 << cost
			}
			must.Equal(t, work, 1<<slices.Max(costs), "costs %v, user %d: rounds of bcrypt", costs, user)
		}
	}
}

// TestProbesNeedNoCredentials: the kubelet's probe has neither a password nor a certificate, and
// does not know whether the port speaks TLS. Other paths demand the configured credentials.
func TestProbesNeedNoCredentials(t *testing.T) {
	dir := t.TempDir()
	certificate(t, dir)
	file := filepath.Join(dir, "web.yml")
	l := listen(t)
	write(t, file, usersPart(t))
	startWeb(t, file, nil, l)
	for config, want := range map[string]int{
		usersPart(t):           http.StatusUnauthorized,
		tlsPart:                http.StatusBadRequest,
		mutualTLS:              http.StatusBadRequest,
		tlsPart + usersPart(t): http.StatusBadRequest,
	} {
		write(t, file, config)
		for path, want := range map[string]int{view.PathHealthy: 200, view.PathReady: 200, view.PathHealthz: 200, "/": want, view.PathMetrics: want, view.PathStatus: want} {
			response, err := http.Get("http://" + l.Addr().String() + path)
			must.Do(t, err)
			_ = response.Body.Close()
			check.Equal(t, response.StatusCode, want, "%q: %s: %s", config, path, response.Status)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestHTTP2: a client such as Prometheus speaks HTTP/2 over TLS, unless the file forbids it.
func TestHTTP2(t *testing.T) {
	dir := t.TempDir()
	certificate(t, dir)
	file := filepath.Join(dir, "web.yml")
	l := listen(t)
	write(t, file, tlsPart)
	startWeb(t, file, nil, l)
	for config, want := range map[string]int{tlsPart: 2, tlsPart + "http_server_config:\n  http2: false\n": 1} {
		write(t, file, config)
		transport := &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true,
		}
		for _, path := range []string{view.PathMetrics, view.PathHealthy} {
			response, err := (&http.Client{Transport: transport}).Get("https://" + l.Addr().String() + path)
			must.Do(t, err)
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
			if response.ProtoMajor != want || response.StatusCode != http.StatusOK {
				t.Errorf("%q: %s: %s %s, want HTTP/%d", config, path, response.Proto, response.Status, want)
			}
		}
		transport.CloseIdleConnections()
	}
}
