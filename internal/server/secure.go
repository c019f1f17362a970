package server

import (
	"fmt"
	"io"
	"net/http"
)

// readOnly refuses every method that could be meant to change something.
func readOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			writeText(w, http.StatusMethodNotAllowed, func(w io.Writer) {
				fmt.Fprintln(w, "plegd only answers GET and HEAD: nothing can be changed over HTTP")
			})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// secure sets the headers that keep a browser from doing more with an answer
// than showing it. A header that the operator set in --web.config.file stands.
func secure(csp string, next http.Handler) http.Handler {
	headers := map[string]string{
		"Content-Security-Policy":      csp,
		"X-Content-Type-Options":       "nosniff",
		"X-Frame-Options":              "deny",
		"Referrer-Policy":              "no-referrer",
		"Cross-Origin-Resource-Policy": "same-origin",
		"Cache-Control":                "no-store",
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range headers {
			if w.Header().Get(name) == "" {
				w.Header().Set(name, value)
			}
		}
		next.ServeHTTP(w, r)
	})
}
