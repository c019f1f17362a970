// Package drill posts an alert to an Alertmanager as plegd's rules would send it for a reason, so
// that routes, receivers and texts can be tried. It asks neither the runtime nor the daemon.
package drill

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/plain"
)

const (
	postTimeout = 10 * time.Second
	maxAnswer   = 4 << 10 // bytes that are shown of an Alertmanager's error
	alertsPath  = "/api/v2/alerts"
)

// Alert is one alert of the Alertmanager's API v2.
type Alert struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	StartsAt    time.Time         `json:"startsAt"`
	// EndsAt is when the Alertmanager resolves the alert by itself.
	EndsAt time.Time `json:"endsAt"`
}

// ValidateURL checks the URL of an Alertmanager. The error does not show a password.
func ValidateURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("--alertmanager: want http://HOST:9093 or https://HOST:9093, with a path if it has one")
	}
	return nil
}

// Post sends an alert. A redirect is not followed: it could send a password elsewhere.
func Post(ctx context.Context, alertmanager string, a Alert) error {
	body, err := json.Marshal([]Alert{a})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, postTimeout)
	defer cancel()
	target := strings.TrimSuffix(alertmanager, "/") + alertsPath
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, Proxy: http.ProxyFromEnvironment},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode == http.StatusOK {
		return nil
	}
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return err
	}
	text := strings.TrimSpace(string(answer))
	return fmt.Errorf("the Alertmanager answers %s: %s", plain.Text(response.Status), plain.Cut(plain.Text(text)))
}
