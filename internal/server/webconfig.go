package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/exporter-toolkit/web"
	"go.uber.org/zap"
	"go.yaml.in/yaml/v2"
	"golang.org/x/crypto/bcrypt"
	"golang.org/x/time/rate"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/view"
)

// webReadTimeout is the time after which a request does not wait for --web.config.file and is
// answered by the settings that were read last.
const webReadTimeout = time.Second

// webFile is --web.config.file, in the format of Prometheus's exporter-toolkit. It may be edited
// while plegd runs. The toolkit's own handler checks passwords in an unbounded queue and asks
// health probes for one, so plegd has its own.
type webFile struct {
	path string // empty: neither TLS nor authentication

	mu       sync.Mutex
	reading  chan struct{} // closed when the read in flight ends; nil if there is none
	settings *webSettings  // the last valid ones
	err      error         // of the last read
}

// webSettings are what the file sets. They do not change.
type webSettings struct {
	web.Config
	content string      // of the file
	stamps  string      // of the files that it names
	tls     *tls.Config // nil: none
	limiter *rate.Limiter
	cost    int // the highest bcrypt cost of a user's hash
}

// demands reports whether every client needs a password, or a verified certificate.
func (s *webSettings) demands() (users, certs bool) {
	return len(s.Users) > 0, s.TLSConfig.ClientAuth == "RequireAndVerifyClientCert"
}

// current reads the file. Requests share a read. If it fails the error is returned beside the
// last valid settings.
func (f *webFile) current(ctx context.Context) (*webSettings, error) {
	if f.path == "" {
		return &webSettings{}, nil
	}
	f.mu.Lock()
	reading := f.reading
	if reading == nil {
		reading = make(chan struct{})
		f.reading = reading
		go f.read(reading)
	}
	f.mu.Unlock()
	limited, cancel := context.WithTimeout(ctx, webReadTimeout)
	defer cancel()
	select {
	case <-reading:
	case <-limited.Done():
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.settings == nil && f.err == nil {
		return nil, fmt.Errorf("read %s: %w", f.path, bounded.ErrLate)
	}
	return f.settings, f.err
}

// read reads the file once, and closes done.
func (f *webFile) read(done chan struct{}) {
	f.mu.Lock()
	last := f.settings
	f.mu.Unlock()
	var settings *webSettings
	err := bounded.Recovered(func() (err error) {
		settings, err = readWebSettings(f.path, last)
		return err
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
	if err == nil {
		f.settings = settings
	}
	f.reading = nil
	close(done)
}

// readWebSettings returns last if none of the files has changed since.
func readWebSettings(path string, last *webSettings) (*webSettings, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if last != nil && last.content == string(content) && last.stamps == fileStamps(&last.TLSConfig) {
		return last, nil
	}
	s := &webSettings{content: string(content), Config: web.Config{
		TLSConfig:  web.TLSConfig{MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS13},
		HTTPConfig: web.HTTPConfig{HTTP2: true},
	}}
	if err := yaml.UnmarshalStrict(content, &s.Config); err != nil {
		return nil, err
	}
	s.TLSConfig.SetDirectory(filepath.Dir(path))
	s.stamps = fileStamps(&s.TLSConfig)
	if err := web.Validate(path); err != nil {
		return nil, err
	}
	if s.RateLimiterConfig.Interval != 0 {
		s.limiter = rate.NewLimiter(rate.Every(s.RateLimiterConfig.Interval), s.RateLimiterConfig.Burst)
	}
	for _, hash := range s.Users {
		cost, _ := bcrypt.Cost([]byte(hash)) // valid: see above
		s.cost = max(s.cost, cost)
	}
	s.tls, err = s.serverTLS()
	return s, err
}

// fileStamps identifies the versions of the files that a configuration names.
func fileStamps(c *web.TLSConfig) string {
	stamps := ""
	for _, file := range []string{c.TLSCertPath, c.TLSKeyPath, c.ClientCAs} {
		if info, err := os.Stat(file); err == nil {
			stamps += fmt.Sprintf("\n%s %d %s", info.ModTime(), info.Size(), file)
		}
	}
	return stamps
}

// serverTLS returns the configuration of the server's side, nil without TLS.
func (s *webSettings) serverTLS() (*tls.Config, error) {
	if !s.TLSConfig.IsEnabled() {
		return nil, nil
	}
	c, err := web.ConfigToTLSConfig(&s.TLSConfig)
	if err != nil {
		return nil, err
	}
	// The toolkit reads the certificate in each handshake, which a hung disk would stop.
	certificate, err := c.GetCertificate(nil)
	if err != nil {
		return nil, err
	}
	c.GetCertificate = nil
	c.Certificates = []tls.Certificate{*certificate}
	c.NextProtos = []string{"http/1.1"}
	if s.HTTPConfig.HTTP2 {
		c.NextProtos = []string{"h2", "http/1.1"}
	}
	return c, nil
}

// authenticated is the key of a request's context that is set for an authenticated client.
type authenticated struct{}

// guard asks the clients of next for what the file demands. The health endpoints are answered
// before it, and by plain HTTP too, so that a probe needs no credentials. trusted clients may ask
// as often as they like.
func (f *webFile) guard(next http.Handler, trusted Access, log *zap.Logger) http.Handler {
	known := newPasswords()
	limit := &limits{trusted: trusted}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case view.PathHealthy, view.PathReady, view.PathHealthz:
			limit.slow(r)
			next.ServeHTTP(w, r)
			return
		}
		s, err := f.current(r.Context())
		if err != nil {
			log.Error("the web configuration cannot be read", zap.String("file", f.path), zap.Error(err))
			refuse(w, http.StatusInternalServerError)
			return
		}
		if !known.remembers(s.credentials(r)) && limit.slow(r) {
			w.Header().Set("Connection", "close")
			w.Header().Set("Retry-After", "1")
			refuse(w, http.StatusTooManyRequests)
			return
		}
		s.serve(w, r, known, next)
	})
}

// serve passes a request on to next if the client may ask.
func (s *webSettings) serve(w http.ResponseWriter, r *http.Request, known *passwords, next http.Handler) {
	if s.tls != nil && r.TLS == nil {
		writeText(w, http.StatusBadRequest, "this address speaks HTTPS; by HTTP it answers health probes only")
		return
	}
	if s.limiter != nil && !s.limiter.Allow() {
		refuse(w, http.StatusTooManyRequests)
		return
	}
	for name, value := range s.HTTPConfig.Header {
		w.Header().Set(name, value)
	}
	users, certs := s.demands()
	if users && !s.admits(w, r, known) {
		return
	}
	verified := certs && r.TLS != nil && len(r.TLS.VerifiedChains) > 0
	if users || verified {
		r = r.WithContext(context.WithValue(r.Context(), authenticated{}, true))
	}
	next.ServeHTTP(w, r)
}

// admits reports whether the password of a request is right. Otherwise it has refused the request.
func (s *webSettings) admits(w http.ResponseWriter, r *http.Request, known *passwords) bool {
	err := s.login(r, known)
	if err == nil {
		return true
	}
	bounded.Sleep(r.Context(), refusalDelay)
	if errors.Is(err, errPasswordsBusy) {
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusTooManyRequests)
		return false
	}
	w.Header().Set("WWW-Authenticate", "Basic")
	refuse(w, http.StatusUnauthorized)
	return false
}

// login checks the password of a request.
func (s *webSettings) login(r *http.Request, known *passwords) error {
	if _, _, ok := r.BasicAuth(); !ok {
		return errWrongPassword
	}
	return known.check(r.Context(), clientOf(r.RemoteAddr), s.credentials(r))
}

// credentials returns those of a request, with the configured hash.
func (s *webSettings) credentials(r *http.Request) credentials {
	user, password, _ := r.BasicAuth()
	return credentials{user: user, password: password, hash: string(s.Users[user]), cost: s.cost}
}

func refuse(w http.ResponseWriter, code int) { http.Error(w, http.StatusText(code), code) }

func validateWebConfig(file string) error {
	info, err := os.Stat(file)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a regular file") // opening a FIFO would wait for its writer
	} else {
		err = web.Validate(file)
	}
	if err != nil {
		return fmt.Errorf("--web.config.file %q: %s; give a readable file in the format of Prometheus's "+
			"exporter-toolkit", file, strings.Join(strings.Fields(err.Error()), " "))
	}
	return nil
}
