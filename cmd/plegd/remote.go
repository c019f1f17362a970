package main

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/pflag"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/server"
	"github.com/plegd/plegd/internal/view"
	"github.com/plegd/plegd/internal/view/text"
)

// remoteFlags adds the flags that ask a daemon over HTTP. All but --url are named
// as curl's.
func remoteFlags(fs *pflag.FlagSet) *server.Remote {
	r := &server.Remote{}
	fs.StringVar(&r.URL, "url", "", "ask this daemon over HTTP, as in http://NODE:20290; it answers with the public summary unless it authenticates the client")
	fs.StringVar(&r.CACert, "cacert", "", "certificates that --url's is verified with, in PEM")
	fs.StringVar(&r.Cert, "cert", "", "client certificate for --url, in PEM")
	fs.StringVar(&r.Key, "key", "", "its key")
	fs.StringVarP(&r.User, "user", "u", "", "NAME:PASSWORD for --url")
	fs.BoolVarP(&r.Insecure, "insecure", "k", false, "do not verify --url's certificate")
	return r
}

// validRemote checks the flags of remoteFlags.
func validRemote(r *server.Remote) error {
	if r.URL == "" {
		if *r != (server.Remote{}) {
			return errors.New("--cacert, --cert, --key, --user and --insecure: give --url with them")
		}
		return nil
	}
	return r.Validate()
}

// showRemote prints the status of a daemon that is asked over HTTP. A public
// summary has a text and a document of its own.
func showRemote(ctx context.Context, w io.Writer, r *server.Remote, output string, print func(io.Writer, *health.Snapshot) (int, error)) (int, error) {
	full, public, err := r.FetchStatus(ctx)
	switch {
	case err != nil:
		return exitUnknown, err
	case full != nil:
		return print(w, full)
	}
	return printPublic(w, public, output, print)
}

func printPublic(w io.Writer, p *view.Public, output string, print func(io.Writer, *health.Snapshot) (int, error)) (int, error) {
	code := exitCode(p.Snapshot())
	switch output {
	case "text":
		return code, text.WritePublicText(w, p, isTerminal(w))
	case "json":
		return code, indented(w, p)
	}
	return print(w, p.Snapshot())
}
