package view

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"net/http"
	"regexp"
	"strings"
	"sync"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

//go:embed page.js
var pageJS string

// docs is where the pages of the reasons are.
const docs = "https://github.com/plegd/plegd/blob/main/docs/reasons/"

// page is one file without references, because it may be read through several port
// forwards. Its script only fetches the page again and copies commands. It is parsed on
// first use: most nodes are never looked at.
var page = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{"parts": parts, "groups": groups}).Parse(pageHTML))
})

// CSP allows the page's own style sheet and script, by their hashes, and the script's
// requests.
func CSP() string {
	hash := func(content string) string {
		sum := sha256.Sum256([]byte(content))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return "default-src 'none'; style-src " + hash(pageCSS) + "; script-src " + hash(pageJS) +
		"; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

// Missing returns the document of a page that does not exist. It is served with 404.
func Missing(text string) *Document { return &Document{Title: "404", Meaning: text} }

// ServePage writes a document as a page. It makes the page whole before its first byte is
// sent, so that an error cannot leave half of it behind.
func (d *Document) ServePage(w http.ResponseWriter, r *http.Request) {
	var b bytes.Buffer
	err := page().Execute(&b, struct {
		*Document
		CSS  template.CSS
		JS   template.JS
		Docs string
		Home bool // the page of the node now
	}{d, template.CSS(pageCSS), template.JS(pageJS), docs, r.URL.Path == "/"})
	if err != nil {
		text := "making the page failed: " + err.Error() + "; " + PathStatus + " has the same facts as JSON"
		http.Error(w, text, http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if d.Title == "404" {
		w.WriteHeader(http.StatusNotFound)
	}
	_, _ = w.Write(b.Bytes())
}

// groups puts the sections of the two columns side by side on a wide screen.
func groups(sections []Section) (out []struct{ Left, Right []Section }) {
	last := 0
	for _, s := range sections {
		if s.Column == 0 || last == 0 {
			out = append(out, struct{ Left, Right []Section }{})
		}
		g := &out[len(out)-1]
		last = s.Column
		if last == 2 {
			g.Right = append(g.Right, s)
		} else {
			g.Left = append(g.Left, s)
		}
	}
	return out
}

// part is a piece of a text: words, a name, or a command.
type part struct {
	Text          string
	Code, Command bool
}

var (
	// runnable is the begin of a command, unlike that of a name or a flag. A command has arguments.
	runnable = regexp.MustCompile(`^[a-z][a-z0-9._-]* [^ ]`)
	// placeholder is a word that a person replaces first.
	placeholder = regexp.MustCompile(`(^|[ /<])(CONTAINER|POD|PID|ID|NODE|NAME|UNIT|SOCKET)([ />]|$)`)
)

// isCommand reports whether a text can be run as it is.
func isCommand(text string) bool {
	return runnable.MatchString(text) && !placeholder.MatchString(text)
}

// parts splits a text at the backticks around its commands.
func parts(s string) (out []part) {
	for i, text := range strings.Split(s, "`") {
		code := i%2 == 1
		if len(out) > 0 && out[len(out)-1].Command { // it has a line of its own
			text = strings.TrimLeft(text, ":,; ")
		}
		if text != "" {
			out = append(out, part{Text: text, Code: code, Command: code && isCommand(text)})
		}
	}
	return out
}
