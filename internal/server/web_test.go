package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/plegd/plegd/internal/view"
	"github.com/plegd/plegd/internal/view/viewtest"
)

// newTestWeb returns a server that clients on other hosts ask.
func newTestWeb(opts WebOptions) (*Server, *logRecorder) {
	log := newLogRecorder()
	access := LocalOrAuthenticated(opts.ConfigFile)
	h := testHandler(viewtest.NewSource(viewtest.Degraded()), false, func(o *HandlerOptions) {
		o.Access = func(r *http.Request) bool {
			r = r.Clone(r.Context())
			r.RemoteAddr = "203.0.113.9:4711"
			return access(r)
		}
	})
	s := NewWebServer(opts, h, log.log)
	s.retry = 20 * time.Millisecond
	return s, log
}

// address is the only one that is served.
func address(t *testing.T, s *Server) string {
	t.Helper()
	eventually(t, "served", func() bool { return len(s.Addrs()) == 1 })
	return s.Addrs()[0].String()
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
	handed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, log := newTestWeb(WebOptions{Addresses: []string{"127.0.0.1:0", "[::1]:0"}, Listeners: []net.Listener{handed}})
	stop := start(t, s)
	eventually(t, "three addresses are served", func() bool { return len(s.Addrs()) == 3 })
	for _, addr := range s.Addrs() {
		for path, want := range map[string]int{view.PathMetrics: 200, view.PathHealthz: 200, "/nothing": 404} {
			code, body, err := get(http.DefaultClient, "http://"+addr.String()+path, nil)
			if err != nil || code != want {
				t.Errorf("%s%s: %d, %v: %s", addr, path, code, err, body)
			}
		}
	}
	// Credentials open nothing unless the configuration demands them.
	_, body, err := get(http.DefaultClient, "http://"+s.Addrs()[0].String()+view.PathStatus, func(r *http.Request) { r.SetBasicAuth("a", "b") })
	if err != nil || strings.Contains(body, "nightly-report") {
		t.Errorf("names without authentication: %v", err)
	}
	if d := stop(); d > time.Second || len(s.Addrs()) != 0 {
		t.Errorf("stopping took %v, still served: %v", d, s.Addrs())
	}
	if log.count("serving the web address") != 3 || log.count("level=warn") != 0 {
		t.Errorf("logged:\n%s", log)
	}
}

// TestWebServerStopsInTime in spite of an answer in flight.
func TestWebServerStopsInTime(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	h := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(entered)
		<-release
	})
	s := NewWebServer(WebOptions{Addresses: []string{"127.0.0.1:0"}}, h, newLogRecorder().log)
	stop := start(t, s)
	url := "http://" + address(t, s) + "/"
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _, _ = get(http.DefaultClient, url, nil)
	}()
	<-entered
	if d := stop(); d > shutdownGrace+400*time.Millisecond {
		t.Errorf("stopping took %v", d)
	}
	<-done
}

// TestWebServerRetries: a busy port and a broken configuration are transient: logged
// once, exported, and served once they are fixed. Another address is served meanwhile.
func TestWebServerRetries(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "web.yml")
	write(t, file, "nonsense: 1")
	for want, tt := range map[string]struct {
		opts  WebOptions
		fix   func()
		total int
	}{
		"address already in use": {WebOptions{Addresses: []string{busy.Addr().String(), "127.0.0.1:0"}}, func() { _ = busy.Close() }, 2},
		"nonsense":               {WebOptions{Addresses: []string{"127.0.0.1:0"}, ConfigFile: file}, func() { write(t, file, usersPart(t)) }, 1},
	} {
		s, log := newTestWeb(tt.opts)
		start(t, s) // ready in spite of it
		first, _ := s.Source()
		eventually(t, "a second attempt", func() bool { now, _ := s.Source(); return now.At.After(first.At) })
		if log.count("level=warn") != 1 || log.count(want) != 1 || first.Up || !strings.Contains(first.Err, want) || len(s.Addrs()) != tt.total-1 {
			t.Errorf("%s: exported as %+v, logged:\n%s", want, first, log)
		}
		tt.fix()
		eventually(t, "served", func() bool { return len(s.Addrs()) == tt.total })
		if state, ok := s.Source(); !ok || !state.Up || state.Err != "" {
			t.Errorf("served, and exported as %+v", state)
		}
		if tt.opts.ConfigFile == "" {
			continue
		}
		write(t, file, "basic_auth_users: [") // broken again, while it is served
		for range 3 {
			code, body, err := get(http.DefaultClient, "http://"+address(t, s)+view.PathStatus, nil)
			if err != nil || code != http.StatusInternalServerError || strings.Contains(body, "pleg") {
				t.Errorf("%d, %v: %s", code, err, body)
			}
		}
		if log.count("Unable to parse configuration") != 1 {
			t.Errorf("logged:\n%s", log)
		}
	}
}

// certificate writes a self-signed certificate and its key for 127.0.0.1.
func certificate(t *testing.T, dir string) (pool *x509.CertPool, pair tls.Certificate) {
	t.Helper()
	key, keyErr := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "plegd test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	keyDER, marshalErr := x509.MarshalECPrivateKey(key)
	if err := errors.Join(keyErr, err, marshalErr); err != nil {
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

const (
	tlsPart   = "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n"
	mutualTLS = tlsPart + "  client_ca_file: cert.pem\n  client_auth_type: RequireAndVerifyClientCert\n"
)

func usersPart(t *testing.T) string {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	return "basic_auth_users:\n  prometheus: " + string(hash) + "\n"
}

// TestAuthentication: who authenticates sees everything, over TLS with a password or a
// certificate, and the configuration is followed while plegd runs.
func TestAuthentication(t *testing.T) {
	dir := t.TempDir()
	pool, pair := certificate(t, dir)
	file := filepath.Join(dir, "web.yml")
	write(t, file, tlsPart+usersPart(t))
	s, log := newTestWeb(WebOptions{Addresses: []string{"127.0.0.1:0"}, ConfigFile: file})
	start(t, s)
	host := address(t, s)
	client := func(certs ...tls.Certificate) *http.Client {
		return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: certs}}}
	}
	login := func(user, password string) func(*http.Request) {
		return func(r *http.Request) { r.SetBasicAuth(user, password) }
	}
	for i, tt := range []struct {
		config string // written before it, if not empty
		client *http.Client
		edit   func(*http.Request)
		code   int // 0: no answer
		names  bool
	}{
		{"", client(), login("prometheus", "secret"), 200, true},
		{"", client(), nil, 401, false},
		{"", client(), login("prometheus", "wrong"), 401, false},
		{"", client(), login("root", "secret"), 401, false},
		{tlsPart, client(), login("prometheus", "secret"), 200, false}, // nothing demands the password
		{mutualTLS, client(pair), nil, 200, true},
		{"", client(), nil, 0, false},
		{"basic_auth_users: [", client(pair), nil, 0, false},
	} {
		if tt.config != "" {
			write(t, file, tt.config)
		}
		code, body, err := get(tt.client, "https://"+host+view.PathStatus, tt.edit)
		if code != tt.code || (err == nil) != (tt.code > 0) || strings.Contains(body, "nightly-report") != tt.names || code == 401 && strings.Contains(body, "plegd") {
			t.Errorf("%d: %d, %v: %s", i, code, err, body)
		}
	}
	if log.count("level=info") != 1 {
		t.Errorf("logged:\n%s", log)
	}
}

// TestValidateWeb: an error is one line that names the flag and the value.
func TestValidateWeb(t *testing.T) {
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
		{"empty", []string{""}, "", []string{`--web.listen-address ""`, "missing port", "[HOST]:PORT"}},
		{"no port", []string{"127.0.0.1"}, "", []string{`"127.0.0.1"`, "missing port"}},
		{"large port", []string{":70000"}, "", []string{`":70000"`, "out of range"}},
		{"URL", []string{"http://127.0.0.1:20290"}, "", []string{"too many colons"}},
		{"twice", []string{":20290", ":20290"}, "", []string{"given twice"}},
		{"good file", []string{":20290"}, file("good.yml", tlsPart+usersPart(t)), nil},
		{"missing file", nil, filepath.Join(dir, "none.yml"), []string{"--web.config.file", "none.yml", "no such file"}},
		{"unknown field", nil, file("unknown.yml", "tls: true\nnonsense: 1\n"), []string{"unknown.yml", "not found"}},
		{"missing certificate", nil, file("nocert.yml", "tls_server_config:\n  cert_file: nowhere.pem\n  key_file: key.pem\n"), []string{"nocert.yml", "nowhere.pem"}},
		{"plain password", nil, file("plain.yml", "basic_auth_users:\n  a: secret\n"), []string{"plain.yml", "hash"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := ValidateWeb(tt.addresses, tt.file)
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

// TestSystemdListeners: without listeners of this process the flag is an error.
func TestSystemdListeners(t *testing.T) {
	for _, tt := range [][2]string{{"", ""}, {"1", "1"}, {strconv.Itoa(os.Getpid()), "0"}, {"x", "y"}} {
		t.Setenv("LISTEN_PID", tt[0])
		t.Setenv("LISTEN_FDS", tt[1])
		if l, err := SystemdListeners(); err == nil || !strings.Contains(err.Error(), "--web.systemd-socket") {
			t.Errorf("%q: %v, %v", tt, l, err)
		}
	}
}

// TestIdleConnections: connections that send nothing are closed in time for a
// scrape that waits for a place.
func TestIdleConnections(t *testing.T) {
	s, _ := newTestWeb(WebOptions{Addresses: []string{"127.0.0.1:0"}})
	start(t, s)
	host := address(t, s)
	for range maxWebConns {
		c, err := net.Dial("tcp", host)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	client := &http.Client{Timeout: 2 * readTimeout}
	if code, _, err := get(client, "http://"+host+view.PathMetrics, nil); err != nil || code != http.StatusOK {
		t.Errorf("a scrape beside %d idle connections: %d, %v", maxWebConns, code, err)
	}
}

// TestClientURL: an authenticated client gets the status, another one the summary.
func TestClientURL(t *testing.T) {
	dir := t.TempDir()
	certificate(t, dir)
	serve := func(config string) string {
		opts := WebOptions{Addresses: []string{"127.0.0.1:0"}}
		if config != "" {
			f, err := os.CreateTemp(dir, "*.yml")
			if err != nil {
				t.Fatal(err)
			}
			_ = f.Close()
			opts.ConfigFile = f.Name()
			write(t, opts.ConfigFile, config)
		}
		s, _ := newTestWeb(opts)
		start(t, s)
		return address(t, s)
	}
	url, ca, key := "https://"+serve(tlsPart+usersPart(t)), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")

	for name, tt := range map[string]struct {
		client       Client
		full, public bool
		err          string
	}{
		"password":     {Client{URL: url, CACert: ca, User: "prometheus:secret"}, true, false, ""},
		"insecure":     {Client{URL: url + "/", Insecure: true, User: "prometheus:secret"}, true, false, ""},
		"certificate":  {Client{URL: "https://" + serve(mutualTLS), CACert: ca, Cert: ca, Key: key}, true, false, ""},
		"no password":  {Client{URL: url, CACert: ca}, false, false, "give --user"},
		"no trust":     {Client{URL: url, User: "prometheus:secret"}, false, false, "certificate"},
		"another host": {Client{URL: "http://" + serve("")}, false, true, ""},
		"no such CA":   {Client{URL: url, CACert: filepath.Join(dir, "none")}, false, false, "--cacert"},
		"no such key":  {Client{URL: url, Cert: ca, Key: filepath.Join(dir, "none")}, false, false, "--cert"},
	} {
		full, public, err := tt.client.Status(t.Context())
		if (full != nil) != tt.full || (public != nil) != tt.public || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %v, %v, %v", name, full != nil, public != nil, err)
		}
	}
	for _, bad := range []Client{{URL: "node:20290"}, {URL: "ftp://node"}, {URL: "http://"}, {URL: url, Cert: "x"}, {User: "a:b"}} {
		if bad.Validate() == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}
