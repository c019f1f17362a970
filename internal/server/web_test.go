package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
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
	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/internal/view"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
	"github.com/plegd/plegd/test/viewtest"
)

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// startWeb starts a server that clients on other hosts ask.
func startWeb(t *testing.T, file string, addresses []string, listeners ...net.Listener) (stop func(), s *Server, log *logRecorder) {
	t.Helper()
	log = newLogRecorder()
	h := testHandler(viewtest.NewSource(viewtest.Degraded()), false, func(o *HandlerOptions) {
		o.Access = func(r *http.Request) bool {
			r = r.Clone(r.Context())
			r.RemoteAddr = "203.0.113.9:4711"
			return RootOrAuthenticated(proc.TCPOwner)(r)
		}
	})
	s = NewWebServer(addresses, listeners, file, h, nobody, func() {}, log.log)
	s.retry = 20 * time.Millisecond
	return start(t, s), s, log
}

// seen is the client's status: "full", "public", or an error.
func seen(t *testing.T, c Client) string {
	t.Helper()
	c.timeout = time.Minute // checking a password takes long on a loaded machine
	full, _, err := c.Status(t.Context())
	switch {
	case err != nil:
		return err.Error()
	case full == nil:
		return "public"
	}
	return "full"
}

func TestWebServer(t *testing.T) {
	handed := listen(t)
	address := must.FreeAddress(t)
	stop, _, log := startWeb(t, "", []string{address}, handed)
	for _, host := range []string{address, handed.Addr().String()} {
		// Credentials open nothing unless the configuration demands them.
		c := Client{URL: "http://" + host, User: "a:b"}
		check.Equal(t, seen(t, c), "public", "%s", host)
		for path, ok := range map[string]bool{view.PathMetrics: true, view.PathHealthz: true, "/nothing": false} {
			if _, err := c.Get(t.Context(), path); (err == nil) != ok {
				t.Errorf("%s%s: %v", host, path, err)
			}
		}
	}
	stop()
	check.Contains(t, seen(t, Client{URL: "http://" + address}), "refused", "after the end")
	if log.count("serving the web address") != 2 || log.count("level=warn") != 0 {
		t.Errorf("logged:\n%s", log)
	}
}

// TestWebServerRetries: a busy port and a broken configuration are transient: logged
// once, exported, and served once they are fixed. Another address is served meanwhile.
func TestWebServerRetries(t *testing.T) {
	file := filepath.Join(t.TempDir(), "web.yml")
	write(t, file, "nonsense: 1")
	for want, config := range map[string]string{"address already in use": "", "nonsense": file} {
		busy, err := net.Listen("tcp", must.FreeAddress(t))
		must.Do(t, err)
		other := listen(t)
		address := busy.Addr().String()
		if config != "" {
			_ = busy.Close()
		}
		_, s, log := startWeb(t, config, []string{address}, other) // ready in spite of it
		first, _ := s.Source()
		eventually(t, "a second attempt", func() bool { now, _ := s.Source(); return now.At.After(first.At) })
		if log.count(want) == 0 || log.count("level=warn") != log.count(want) || log.count("address:"+address) != 1 || first.Up || !strings.Contains(first.Err, want) {
			t.Errorf("%s: exported as %+v, logged:\n%s", want, first, log)
		}
		fixed := "public"
		if config == "" {
			check.Equal(t, seen(t, Client{URL: "http://" + other.Addr().String()}), fixed, "the other address")
			_ = busy.Close()
		} else {
			write(t, file, usersPart(t))
			fixed = "full"
		}
		c := Client{URL: "http://" + address, User: "prometheus:secret"}
		eventually(t, "served", func() bool { return seen(t, c) == fixed })
		eventually(t, "exported", func() bool { now, ok := s.Source(); return ok && now.Up && now.Err == "" })
		if config == "" {
			continue
		}
		write(t, file, "basic_auth_users: [") // broken again, while it is served
		for range 3 {
			if got := seen(t, c); !strings.Contains(got, "500 Internal Server Error") {
				t.Error(got)
			}
		}
		check.Equal(t, log.count("the web configuration cannot be read"), 1, "logged: %s", log)
	}
}

// certificate writes a self-signed certificate and its key for 127.0.0.1.
func certificate(t *testing.T, dir string) {
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
	must.Do(t, errors.Join(keyErr, err, marshalErr))
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
	write(t, filepath.Join(dir, "cert.pem"), string(certPEM))
	write(t, filepath.Join(dir, "key.pem"), string(keyPEM))
}

const (
	tlsPart   = "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n"
	mutualTLS = tlsPart + "  client_ca_file: cert.pem\n  client_auth_type: RequireAndVerifyClientCert\n"
)

func usersPart(t *testing.T) string {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	must.Do(t, err)
	return "basic_auth_users:\n  prometheus: " + string(hash) + "\n"
}

// TestAuthentication: who authenticates sees everything, over TLS with a password or a
// certificate, and the configuration is followed while plegd runs.
func TestAuthentication(t *testing.T) {
	dir := t.TempDir()
	certificate(t, dir)
	file, ca, key := filepath.Join(dir, "web.yml"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	write(t, file, tlsPart+usersPart(t))
	l := listen(t)
	_, _, log := startWeb(t, file, nil, l)
	for i, tt := range []struct {
		config string // written before it, if not empty
		client Client
		want   string
	}{
		{"", Client{CACert: ca, User: "prometheus:secret"}, "full"},
		{"", Client{Insecure: true, User: "prometheus:secret"}, "full"},
		{"", Client{User: "prometheus:secret"}, "certificate"},
		{"", Client{CACert: ca}, "give --user"},
		{"", Client{CACert: ca, User: "prometheus:wrong"}, "give --user"},
		{"", Client{CACert: filepath.Join(dir, "none")}, "--cacert"},
		{"", Client{Cert: ca, Key: filepath.Join(dir, "none")}, "--cert"},
		{tlsPart, Client{CACert: ca, User: "prometheus:secret"}, "public"}, // nothing demands the password
		{mutualTLS, Client{CACert: ca, Cert: ca, Key: key}, "full"},
		{"", Client{CACert: ca}, "certificate"},
		{"basic_auth_users: [", Client{CACert: ca, Cert: ca, Key: key}, "ask plegd"},
	} {
		if tt.config != "" {
			write(t, file, tt.config)
		}
		tt.client.URL = "https://" + l.Addr().String() + "/"
		check.Contains(t, seen(t, tt.client), tt.want, "%d", i)
	}
	check.Equal(t, log.count("level=info"), 1, "logged: %s", log)
	for _, bad := range []Client{{URL: "http://x?a=b"}, {URL: "http://x", User: "noColon"}, {URL: "node:20290"}, {URL: "ftp://node"}, {URL: "http://"}, {URL: "http://x", Cert: "x"}, {User: "a:b"}} {
		if bad.Validate() == nil {
			t.Errorf("%+v is accepted", bad)
		}
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
	fifo := filepath.Join(dir, "fifo")
	must.Do(t, unix.Mkfifo(fifo, 0o600))
	for _, tt := range []struct {
		name      string
		addresses []string
		file      string
		want      []string // parts of the error; none: valid
	}{
		{"default", []string{":20290"}, "", nil},
		{"empty", []string{""}, "", []string{`--web.listen-address ""`, "missing port", "[HOST]:PORT"}},
		{"no port", []string{"127.0.0.1"}, "", []string{`"127.0.0.1"`, "missing port"}},
		{"large port", []string{":70000"}, "", []string{`":70000"`, "0 to 65535"}},
		{"URL", []string{"http://127.0.0.1:20290"}, "", []string{"too many colons"}},

		{"good file", []string{":20290"}, file("good.yml", tlsPart+usersPart(t)), nil},
		{"missing file", nil, filepath.Join(dir, "none.yml"), []string{"--web.config.file", "none.yml", "no such file"}},
		{"FIFO", nil, fifo, []string{"--web.config.file", fifo, "not a regular file"}},
		{"directory", nil, dir, []string{"--web.config.file", dir, "not a regular file"}},
		{"unknown field", nil, file("unknown.yml", "tls: true\nnonsense: 1\n"), []string{"unknown.yml", "not found"}},
		{"missing certificate", nil, file("nocert.yml", "tls_server_config:\n  cert_file: nowhere.pem\n  key_file: key.pem\n"), []string{"nocert.yml", "nowhere.pem"}},
		{"plain password", nil, file("plain.yml", "basic_auth_users:\n  a: secret\n"), []string{"plain.yml", "hash"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := ValidateWeb(tt.addresses, tt.file)
			must.Equal(t, err == nil, tt.want == nil, "error: %v", err)
			for _, want := range tt.want {
				check.Contains(t, err.Error(), want, "error")
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
