package kubelet

import (
	"context"
	"io"
	"net/http"
	"time"
)

// abandonAfter is how long an unanswered request is left to wait.
const abandonAfter = time.Minute

// request is a request to the kubelet.
type request struct {
	began  time.Time
	cancel context.CancelFunc
	done   chan answer // holds one
}

type answer struct {
	resp *http.Response
	err  error
}

// get makes one request and waits for its answer, for as long as Timeout. The
// connections of a kubelet that is stopped are made by the kernel, and wait in
// its queue although plegd has given them up. So one that is unanswered is left
// to wait, for up to a minute, and the next get waits for it too.
func (k *Client) get(ctx context.Context, url string) (*http.Response, error) {
	r := k.waiting[url]
	if r == nil {
		req, err := k.newRequest(ctx, url)
		if err != nil {
			return nil, err
		}
		r = k.send(req)
	}
	delete(k.waiting, url)
	limited, cancel := context.WithTimeout(ctx, k.opts.Timeout)
	defer cancel()
	select {
	case a := <-r.done:
		if a.err != nil {
			r.cancel()
			return nil, a.err
		}
		// The body has what is left of the time, and a moment.
		deadline, _ := limited.Deadline()
		timer := time.AfterFunc(max(time.Until(deadline), k.opts.Timeout/10), r.cancel)
		a.resp.Body = &body{ReadCloser: a.resp.Body, end: func() { timer.Stop(); r.cancel() }}
		return a.resp, nil
	case <-limited.Done():
	}
	if ctx.Err() != nil || time.Since(r.began) >= abandonAfter {
		r.cancel()
	} else {
		k.waiting[url] = r
	}
	return nil, limited.Err()
}

// send makes a request in the background.
func (k *Client) send(req *http.Request) *request {
	ctx, cancel := context.WithTimeout(k.life, abandonAfter+k.opts.Timeout)
	r := &request{began: time.Now(), cancel: cancel, done: make(chan answer, 1)}
	go func() {
		resp, err := k.client.Do(req.WithContext(ctx))
		if err == nil && ctx.Err() != nil { // given up meanwhile: nobody will read it
			_ = resp.Body.Close()
			err = ctx.Err()
		}
		r.done <- answer{resp, err}
	}()
	return r
}

// request is a request with the token where the URL is one that keeps it
// secret.
func (k *Client) newRequest(ctx context.Context, url string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "plegd")
	req.Header.Set("Accept", "text/plain")
	if k.opts.TokenFile != "" && req.URL.Scheme == "https" {
		token, err := readToken(k.opts.TokenFile)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return req, nil
}

// body ends its request when it is closed.
type body struct {
	io.ReadCloser
	end func()
}

// Close closes the body.
func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.end()
	return err
}
