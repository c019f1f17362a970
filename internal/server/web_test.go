package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/crypto/bcrypt"

	"github.com/plegd/plegd/internal/view"
	"github.com/plegd/plegd/internal/view/viewtest"
)

func newTestWeb(t *testing.T, opts WebOptions, src Source) (*WebServer, *logRecorder) {
	t.Helper()
	log := newLogRecorder()
	_, metrics := newTestRegistry(src)
	h := NewHandler(src, metrics, HandlerOptions{Access: remoteOrAuthenticated(opts.ConfigFile)})
	s := NewWebServer(opts, h, log.log)
	s.retry = 20 * time.Millisecond
	return s, log
}

// remoteOrAuthenticated is the access that clients on another host have.
func remoteOrAuthenticated(file string) Access {
	access := LocalOrAuthenticated(file)
	return func(r *http.Request) bool {
		r = r.Clone(r.Context())
		r.RemoteAddr = "203.0.113.9:4711"
		return access(r)
	}
}

// get fetches a URL and returns the status and the body.
func get(client *http.Client, url string, edit func(*http.Request)) (int, string, error) {
	req, err := http.NewRequest(http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	req.Close = true
	if edit != nil {
		edit(req)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

func TestWebServer(t *testing.T) {
	s, _ := newTestWeb(t, WebOptions{Addresses: []string{"127.0.0.1:0", "[::1]:0"}}, viewtest.NewSource(viewtest.Degraded()))
	stop := start(t, s)
	eventually(t, "both addresses are served", func() bool { return len(s.Addrs()) == 2 })
	for _, addr := range s.Addrs() {
		for path, want := range map[string]int{view.PathMetrics: 200, view.PathHealthz: 200, "/nothing": 404} {
			code, body, err := get(http.DefaultClient, "http://"+addr.String()+path, nil)
			if err != nil || code != want {
				t.Errorf("%s%s: %d, %v: %s", addr, path, code, err, body)
			}
		}
	}
	// Credentials that nobody asked for open nothing.
	_, body, err := get(http.DefaultClient, "http://"+s.Addrs()[0].String()+view.PathStatus, func(r *http.Request) { r.SetBasicAuth("a", "b") })
	if err != nil || strings.Contains(body, "nightly-report") {
		t.Errorf("names without authentication: %v", err)
	}
	if d := stop(); d > time.Second {
		t.Errorf("stopping took %v", d)
	}
	if len(s.Addrs()) != 0 {
		t.Errorf("still served: %v", s.Addrs())
	}
}

func TestWebServerStopsInTime(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	h := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(entered)
		<-release
	})
	s := NewWebServer(WebOptions{Addresses: []string{"127.0.0.1:0"}}, h, zap.NewNop())
	stop := start(t, s)
	eventually(t, "served", func() bool { return len(s.Addrs()) == 1 })
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _, _ = get(http.DefaultClient, "http://"+s.Addrs()[0].String()+"/", nil)
	}()
	<-entered
	if d := stop(); d > shutdownGrace+400*time.Millisecond {
		t.Errorf("stopping took %v in spite of an answer under way", d)
	}
	<-done
}

func TestWebServerNoAddress(t *testing.T) {
	s, _ := newTestWeb(t, WebOptions{}, viewtest.NewSource(viewtest.Healthy()))
	start(t, s)
	if state, ok := s.Source(); ok {
		t.Errorf("nothing is to be served, and exported is %+v", state)
	}
}

// TestWebServerBusyPort: a busy port is a transient condition. It is logged once, and the
// server comes up when the port is free.
func TestWebServerBusyPort(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := busy.Addr().String()
	s, log := newTestWeb(t, WebOptions{Addresses: []string{address}}, viewtest.NewSource(viewtest.Healthy()))
	start(t, s) // ready in spite of it
	time.Sleep(5 * s.retry)
	if n := log.count("level=warn"); n != 1 {
		t.Errorf("said %d times, want once:\n%s", n, log)
	}
	if !strings.Contains(log.String(), address) || !strings.Contains(log.String(), "address already in use") {
		t.Errorf("the message does not say what is wrong:\n%s", log)
	}
	if state, ok := s.Source(); !ok || state.Up || !strings.Contains(state.Err, "address already in use") {
		t.Errorf("exported as %+v, %v", state, ok)
	}
	_ = busy.Close()
	eventually(t, "the port is served once it is free", func() bool {
		code, _, err := get(http.DefaultClient, "http://"+address+view.PathHealthy, nil)
		return err == nil && code == http.StatusOK
	})
	if state, ok := s.Source(); !ok || !state.Up || state.Err != "" {
		t.Errorf("served, and exported as %+v, %v", state, ok)
	}
}

// TestWebServerTwoAddressesOneBusy: a busy port does not take the other along.
func TestWebServerTwoAddressesOneBusy(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	s, _ := newTestWeb(t, WebOptions{Addresses: []string{busy.Addr().String(), "127.0.0.1:0"}}, viewtest.NewSource(viewtest.Healthy()))
	start(t, s)
	eventually(t, "the other address is served", func() bool { return len(s.Addrs()) == 1 })
	if state, _ := s.Source(); state.Up || !strings.Contains(state.Err, busy.Addr().String()) {
		t.Errorf("one of two is not served, and exported is %+v", state)
	}
}

// certificate writes a self-signed certificate and its key for 127.0.0.1.
func certificate(t *testing.T, dir string) (pool *x509.CertPool, pair tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "plegd test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
	write(t, filepath.Join(dir, "cert.pem"), string(certPEM))
	write(t, filepath.Join(dir, "key.pem"), string(keyPEM))
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(certPEM)
	pair, err = tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	return pool, pair
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func passwordHash(t *testing.T, password string) string {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	return string(hash)
}

const (
	tlsPart   = "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n"
	mutualTLS = tlsPart + "  client_ca_file: cert.pem\n  client_auth_type: RequireAndVerifyClientCert\n"
)

func usersPart(t *testing.T) string {
	return fmt.Sprintf("basic_auth_users:\n  prometheus: %s\n", passwordHash(t, "secret"))
}

func TestWebServerTLSAndBasicAuth(t *testing.T) {
	dir := t.TempDir()
	pool, _ := certificate(t, dir)
	file := filepath.Join(dir, "web.yml")
	write(t, file, tlsPart+usersPart(t))
	addresses := []string{"127.0.0.1:0", "127.0.0.2:0"}
	if err := ValidateWebConfig(addresses, file); err != nil {
		t.Fatal(err)
	}
	s, log := newTestWeb(t, WebOptions{Addresses: addresses[:1], ConfigFile: file}, viewtest.NewSource(viewtest.Degraded()))
	stop := start(t, s)
	eventually(t, "served", func() bool { return len(s.Addrs()) == 1 })
	url := "https://" + s.Addrs()[0].String()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}}
	login := func(r *http.Request) { r.SetBasicAuth("prometheus", "secret") }

	code, body, err := get(client, url+view.PathStatus, login)
	if err != nil || code != http.StatusOK || !strings.Contains(body, "nightly-report") {
		t.Errorf("with the password: %d, %v; want the names too:\n%s", code, err, body)
	}
	for name, edit := range map[string]func(*http.Request){
		"no password":    nil,
		"wrong password": func(r *http.Request) { r.SetBasicAuth("prometheus", "wrong") },
		"wrong user":     func(r *http.Request) { r.SetBasicAuth("root", "secret") },
	} {
		if code, body, err := get(client, url+view.PathStatus, edit); err != nil || code != http.StatusUnauthorized || strings.Contains(body, "plegd") {
			t.Errorf("%s: %d, %v: %s", name, code, err, body)
		}
	}
	if code, _, err := get(http.DefaultClient, "http://"+s.Addrs()[0].String()+view.PathStatus, login); err == nil && code == http.StatusOK {
		t.Error("an answer without TLS")
	}
	// The file is read again: once it no longer asks for a password, names stop.
	write(t, file, tlsPart)
	code, body, err = get(client, url+view.PathStatus, login)
	if err != nil || code != http.StatusOK || strings.Contains(body, "nightly-report") {
		t.Errorf("after the users were removed: %d, %v; want no names", code, err)
	}
	client.CloseIdleConnections()
	if d := stop(); d > time.Second {
		t.Errorf("stopping took %v", d)
	}
	if n := log.count("level=info"); n != 1 {
		t.Errorf("%d lines at INFO, want one:\n%s", n, log)
	}
}

func TestWebServerClientCertificate(t *testing.T) {
	dir := t.TempDir()
	pool, pair := certificate(t, dir)
	file := filepath.Join(dir, "web.yml")
	write(t, file, mutualTLS)
	s, _ := newTestWeb(t, WebOptions{Addresses: []string{"127.0.0.1:0"}, ConfigFile: file}, viewtest.NewSource(viewtest.Degraded()))
	start(t, s)
	eventually(t, "served", func() bool { return len(s.Addrs()) == 1 })
	url := "https://" + s.Addrs()[0].String() + view.PathStatus
	client := func(certs ...tls.Certificate) *http.Client {
		return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: certs}}}
	}
	code, body, err := get(client(pair), url, nil)
	if err != nil || code != http.StatusOK || !strings.Contains(body, "nightly-report") {
		t.Errorf("with the certificate: %d, %v; want the names too", code, err)
	}
	if code, _, err := get(client(), url, nil); err == nil {
		t.Errorf("without the certificate: %d", code)
	}
}

// TestWebServerBrokenFile: a file that breaks while plegd runs is said, once.
func TestWebServerBrokenFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "web.yml")
	write(t, file, usersPart(t))
	s, log := newTestWeb(t, WebOptions{Addresses: []string{"127.0.0.1:0"}, ConfigFile: file}, viewtest.NewSource(viewtest.Degraded()))
	start(t, s)
	eventually(t, "served", func() bool { return len(s.Addrs()) == 1 })
	url := "http://" + s.Addrs()[0].String() + view.PathStatus
	if code, _, err := get(http.DefaultClient, url, nil); err != nil || code != http.StatusUnauthorized {
		t.Fatalf("%d, %v", code, err)
	}
	write(t, file, "basic_auth_users: [")
	for range 3 {
		code, body, err := get(http.DefaultClient, url, nil)
		if err != nil || code != http.StatusInternalServerError || strings.Contains(body, "pleg") {
			t.Errorf("%d, %v: %s", code, err, body)
		}
	}
	if n := log.count("Unable to parse configuration"); n != 1 {
		t.Errorf("said %d times, want once:\n%s", n, log)
	}
}

// TestWebServerFileMended: a file that is broken when the server (re)starts is
// a transient condition as well, logged once, and picked up when it is fixed.
func TestWebServerFileMended(t *testing.T) {
	file := filepath.Join(t.TempDir(), "web.yml")
	write(t, file, "nonsense: 1")
	s, log := newTestWeb(t, WebOptions{Addresses: []string{"127.0.0.1:0"}, ConfigFile: file}, viewtest.NewSource(viewtest.Healthy()))
	start(t, s)
	time.Sleep(5 * s.retry)
	if n := log.count("level=warn"); n != 1 || !strings.Contains(log.String(), "nonsense") || log.count("level=info") != 0 {
		t.Errorf("said %d times, want once:\n%s", n, log)
	}
	write(t, file, usersPart(t))
	eventually(t, "served once the file is fixed", func() bool { return len(s.Addrs()) == 1 })
}

func TestValidateWebConfig(t *testing.T) {
	dir := t.TempDir()
	certificate(t, dir)
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		write(t, path, content)
		return path
	}
	for _, tt := range []struct {
		name      string
		addresses []string
		file      string
		want      []string // parts of the error; none: valid
	}{
		{"default", []string{":20290"}, "", nil},
		{"several", []string{"127.0.0.1:20290", "[::1]:20290", "localhost:0", "node-1.example.org:80"}, "", nil},
		{"none", nil, "", nil},
		{"zone", []string{"[fe80::1%eth0]:20290"}, "", nil},
		{"empty", []string{""}, "", []string{`--web.listen-address ""`, "missing port", "[HOST]:PORT"}},
		{"no port", []string{"127.0.0.1"}, "", []string{`"127.0.0.1"`, "missing port"}},
		{"no number", []string{":http"}, "", []string{`port "http"`}},
		{"large port", []string{":70000"}, "", []string{`port "70000"`, "0 to 65535"}},
		{"negative port", []string{":-1"}, "", []string{`port "-1"`}},
		{"bare IPv6", []string{"::1:20290"}, "", []string{"too many colons"}},
		{"URL", []string{"http://127.0.0.1:20290"}, "", []string{"too many colons"}},
		{"mistyped IP", []string{"127.0.0.256:20290"}, "", []string{`host "127.0.0.256"`}},
		{"space in host", []string{"a b:20290"}, "", []string{`host "a b"`}},
		{"twice", []string{":20290", ":20290"}, "", []string{"given twice"}},
		{"good file", []string{":20290"}, file("good.yml", tlsPart+usersPart(t)), nil},
		{"empty file", []string{":20290"}, file("empty.yml", ""), nil},
		{"missing file", nil, filepath.Join(dir, "none.yml"), []string{"--web.config.file", "none.yml", "no such file"}},
		{"bad yaml", nil, file("bad.yml", "a: [\nb"), []string{"bad.yml", "yaml"}},
		{"unknown field", nil, file("unknown.yml", "tls: true\nnonsense: 1\n"), []string{"unknown.yml", "not found"}},
		{"missing certificate", nil, file("nocert.yml", "tls_server_config:\n  cert_file: nowhere.pem\n  key_file: key.pem\n"), []string{"nocert.yml", "nowhere.pem"}},
		{"plain password", nil, file("plain.yml", "basic_auth_users:\n  a: secret\n"), []string{"plain.yml", "hash"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := ValidateWebConfig(tt.addresses, tt.file)
			if (err == nil) != (tt.want == nil) {
				t.Fatalf("error: %v", err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("no %q in: %v", want, err)
				}
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %v", err)
			}
		})
	}
}

func TestWebConfigAuth(t *testing.T) {
	dir := t.TempDir()
	for name, tt := range map[string]struct {
		content string
		want    bool
	}{
		"empty": {"", false},
		"tls":   {tlsPart, false},
		"users": {usersPart(t), true},
		"certs": {mutualTLS, true},
		// Any certificate at all is no proof of anything.
		"any cert": {tlsPart + "  client_auth_type: RequireAnyClientCert\n", false},
		"if given": {tlsPart + "  client_ca_file: cert.pem\n  client_auth_type: VerifyClientCertIfGiven\n", false},
	} {
		file := filepath.Join(dir, name+".yml")
		write(t, file, tt.content)
		if users, certs, err := webConfigAuth(file); err != nil || (users || certs) != tt.want {
			t.Errorf("%s: %v, %v, %v; want %v", name, users, certs, err, tt.want)
		}
	}
	if users, certs, err := webConfigAuth(""); err != nil || users || certs {
		t.Errorf("no file: %v", err)
	}
	if users, certs := (&webAuth{file: filepath.Join(dir, "none")}).demands(); users || certs {
		t.Error("a missing file counts as authentication")
	}
}

func TestValidateSystemdSocket(t *testing.T) {
	for name, tt := range map[string]struct {
		pid, fds string
		ok       bool
	}{
		"no systemd":       {"", "", false},
		"somebody else's":  {"1", "1", false},
		"no descriptors":   {fmt.Sprint(os.Getpid()), "0", false},
		"one descriptor":   {fmt.Sprint(os.Getpid()), "1", true},
		"not even numbers": {"x", "y", false},
	} {
		t.Setenv("LISTEN_PID", tt.pid)
		t.Setenv("LISTEN_FDS", tt.fds)
		if err := ValidateSystemdSocket(); (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestIdleConnections: connections that send nothing are closed in time for a
// scrape that waits for a place.
func TestIdleConnections(t *testing.T) {
	s, _ := newTestWeb(t, WebOptions{Addresses: []string{"127.0.0.1:0"}}, viewtest.NewSource(viewtest.Healthy()))
	start(t, s)
	eventually(t, "served", func() bool { return len(s.Addrs()) == 1 })
	address := s.Addrs()[0].String()
	for range maxWebConns {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	client := &http.Client{Timeout: 2 * readTimeout}
	if code, _, err := get(client, "http://"+address+view.PathMetrics, nil); err != nil || code != http.StatusOK {
		t.Errorf("a scrape beside %d idle connections: %d, %v", maxWebConns, code, err)
	}
}

// TestRemote: an authenticated client gets the status, another one the summary.
func TestRemote(t *testing.T) {
	dir := t.TempDir()
	certificate(t, dir)
	file := filepath.Join(dir, "web.yml")
	write(t, file, tlsPart+usersPart(t))
	s, _ := newTestWeb(t, WebOptions{Addresses: []string{"127.0.0.1:0"}, ConfigFile: file}, viewtest.NewSource(viewtest.Unhealthy()))
	start(t, s)
	eventually(t, "served", func() bool { return len(s.Addrs()) == 1 })
	open, _ := newTestWeb(t, WebOptions{Addresses: []string{"127.0.0.1:0"}}, viewtest.NewSource(viewtest.Unhealthy()))
	start(t, open)
	eventually(t, "served", func() bool { return len(open.Addrs()) == 1 })
	url, ca := "https://"+s.Addrs()[0].String(), filepath.Join(dir, "cert.pem")

	for name, tt := range map[string]struct {
		remote       Remote
		full, public bool
		err          string
	}{
		"password":     {Remote{URL: url, CACert: ca, User: "prometheus:secret"}, true, false, ""},
		"insecure":     {Remote{URL: url + "/", Insecure: true, User: "prometheus:secret"}, true, false, ""},
		"no password":  {Remote{URL: url, CACert: ca}, false, false, "give --user"},
		"no trust":     {Remote{URL: url, User: "prometheus:secret"}, false, false, "certificate"},
		"another host": {Remote{URL: "http://" + open.Addrs()[0].String()}, false, true, ""},
		"no such CA":   {Remote{URL: url, CACert: filepath.Join(dir, "none")}, false, false, "--cacert"},
	} {
		full, public, err := tt.remote.FetchStatus(t.Context())
		if (full != nil) != tt.full || (public != nil) != tt.public || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %v, %v, %v", name, full != nil, public != nil, err)
		}
	}
	for _, bad := range []Remote{{URL: "node:20290"}, {URL: "ftp://node"}, {URL: "http://"}, {URL: url, Cert: "x"}} {
		if bad.Validate() == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}
