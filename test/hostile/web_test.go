//go:build e2e

package hostile

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
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/plegd/plegd/internal/fakeruntime"
)

// curl asks as a person would, and returns the answer's status and all of it.
func curl(t *testing.T, args ...string) (code, out string) {
	t.Helper()
	path, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("SKIPPED: no curl here")
	}
	b, err := exec.Command(path, append([]string{"-sS", "-m", "20", "-w", "\n%{http_code}", "-i"}, args...)...).CombinedOutput()
	out = string(b)
	i := strings.LastIndexByte(out, '\n')
	if err != nil && i < 0 {
		return "", out
	}
	return out[i+1:], out[:max(i, 0)]
}

// TestTLSAndPassword asks by curl a plegd that demands both.
func TestTLSAndPassword(t *testing.T) {
	t.Parallel()
	_, socket := serve(t, fakeruntime.Options{}, 20)
	dir := tempDir(t)
	certificate(t, dir)
	hash, err := bcrypt.GenerateFromPassword([]byte("open sesame"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "web.yml"), "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n  min_version: TLS12\nbasic_auth_users:\n  ali: '"+string(hash)+"'\n")
	p := start(t, socket, options{flags: []string{"--web.config.file=" + filepath.Join(dir, "web.yml")}})
	p.awaitReason("")
	url, ca := "https://"+p.address, filepath.Join(dir, "cert.pem")
	for _, tt := range []struct {
		name, want string
		args       []string
	}{
		{"with the password", "200", []string{"--cacert", ca, "-u", "ali:open sesame", url + "/metrics"}},
		{"the page", "200", []string{"--cacert", ca, "-u", "ali:open sesame", url + "/"}},
		{"without a password", "401", []string{"--cacert", ca, url + "/metrics"}},
		{"with a wrong one", "401", []string{"--cacert", ca, "-u", "ali:open", url + "/metrics"}},
		{"with a wrong user", "401", []string{"--cacert", ca, "-u", "baba:open sesame", url + "/metrics"}},
		{"health too", "401", []string{"--cacert", ca, url + "/healthz"}},
		{"without trust", "000", []string{"-u", "ali:open sesame", url + "/metrics"}},
		{"without TLS", "400", []string{"http://" + p.address + "/metrics"}},
		{"with an old TLS", "000", []string{"--cacert", ca, "--tls-max", "1.1", "-u", "ali:open sesame", url + "/metrics"}},
		{"to change something", "405", []string{"--cacert", ca, "-u", "ali:open sesame", "-X", "POST", "-d", "x", url + "/api/v1/status"}},
		{"the control socket asks for none", "200", []string{"--unix-socket", p.control, "http://plegd/metrics"}},
	} {
		code, out := curl(t, tt.args...)
		if code != tt.want {
			t.Errorf("%s: %s, want %s: %s", tt.name, code, tt.want, clip(out, 500))
		}
	}
}

// TestHeaders: the headers of every answer.
func TestHeaders(t *testing.T) {
	t.Parallel()
	_, socket := serve(t, fakeruntime.Options{}, 20)
	p := start(t, socket, options{})
	p.awaitReason("")
	for _, path := range []string{"/", "/metrics", "/api/v1/status", "/api/v1/incidents", "/healthz", "/-/ready", "/nothing", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd"} {
		_, out := curl(t, "--path-as-is", "http://"+p.address+path)
		head, body, _ := strings.Cut(out, "\r\n\r\n")
		head = strings.ToLower(head)
		for _, want := range []string{"content-security-policy: default-src 'none'", "x-content-type-options: nosniff", "x-frame-options: deny", "referrer-policy: no-referrer", "cross-origin-resource-policy: same-origin", "cache-control: no-store", "content-type: "} {
			if !strings.Contains(head, want) {
				t.Errorf("%s: no %q in %s", path, want, head)
			}
		}
		for _, bad := range []string{"unsafe-inline", "unsafe-eval", "access-control-allow", "set-cookie", "server:"} {
			if strings.Contains(head, bad) {
				t.Errorf("%s: %q in %s", path, bad, head)
			}
		}
		if strings.Contains(body, "root:x:") {
			t.Errorf("%s serves files", path)
		}
		if i := strings.Index(body, "://"); path == "/" && i >= 0 && strings.Contains(body, "src=\"http") {
			t.Errorf("the page loads something from elsewhere: %s", clip(body[max(0, i-60):], 120))
		}
	}
	for _, path := range []string{"/debug/pprof/", "/debug/vars", "/-/reload", "/-/quit"} {
		if code, _ := curl(t, "http://"+p.address+path); code != "404" {
			t.Errorf("%s answers %s, want 404", path, code)
		}
	}
}

// TestServerLimits: requests that are too large or too slow are refused or ended.
func TestServerLimits(t *testing.T) {
	t.Parallel()
	_, socket := serve(t, fakeruntime.Options{}, 20)
	p := start(t, socket, options{})
	p.awaitReason("")
	if code, _ := curl(t, "-H", "X-Long: "+strings.Repeat("x", 40<<10), "http://"+p.address+"/metrics"); code != "431" {
		t.Errorf("40 KiB of headers are answered with %s, want 431", code)
	}
	for name, say := range map[string]string{"half a request": "GET /metrics HTTP/1.1\r\nHost:", "nothing": "", "a body that does not come": "GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := net.Dial("tcp", p.address)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := c.Write([]byte(say)); err != nil {
				t.Fatal(err)
			}
			if err := c.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
				t.Fatal(err)
			}
			b := make([]byte, 64<<10)
			for err == nil {
				_, err = c.Read(b)
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("it is still held after 30 s")
			}
		})
	}
}

// certificate makes cert.pem and key.pem, for 127.0.0.1.
func certificate(t *testing.T, dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "plegd"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "cert.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	write(t, filepath.Join(dir, "key.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
}
