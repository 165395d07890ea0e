package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// envHTTP names the daemon's HTTP address for all commands that ask it.
const envHTTP = "SALTERN_HTTP"

const defaultHTTP = "127.0.0.1:4531"

// maxAnswer bounds an answer of the daemon in memory: a page of its largest values.
const maxAnswer = 1 << 30

// httpFlag adds the flag --http.
func httpFlag(flags *flag.FlagSet) *string {
	address := os.Getenv(envHTTP)
	if address == "" {
		address = defaultHTTP
	}
	return flags.String("http", address, "`ADDRESS` of the daemon's HTTP, HOST:PORT or a URL (environment: "+envHTTP+")")
}

// client asks the daemon's HTTP API.
type client struct {
	base string // without a slash at the end
	http *http.Client
}

// newClient makes a client of an address as --http takes it.
func newClient(address string) (*client, error) {
	base := strings.TrimRight(address, "/")
	if !strings.Contains(base, "://") {
		if _, _, err := net.SplitHostPort(base); err != nil {
			return nil, usageError("--http %q: HOST:PORT or a URL is needed", address)
		}
		base = "http://" + base
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, usageError("--http %q: HOST:PORT or a URL is needed", address)
	}
	// A proxy of the environment has no way to our loopback.
	transport := &http.Transport{
		DialContext:           (&net.Dialer{Timeout: 2 * time.Second}).DialContext,
		ResponseHeaderTimeout: 30 * time.Second,
	}
	return &client{base: base, http: &http.Client{Transport: transport}}, nil
}

// get asks for a path and decodes the answer into out, where numbers are kept as they came
// (json.Number, json.RawMessage). Its errors have the exit code that they mean.
func (c *client) get(ctx context.Context, path string, query url.Values, out any) error {
	target := c.base + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return usageError("%s: %w", target, err)
	}
	request.Header.Set("Accept", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return c.unreachable(ctx, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return c.unreachable(ctx, err)
	}
	if response.StatusCode != http.StatusOK {
		return c.refused(response, body)
	}
	return c.decode(body, out)
}

// decode reads a part of an answer, or the whole.
func (c *client) decode(body []byte, out any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if err := d.Decode(out); err != nil {
		return fmt.Errorf("the answer of %s is not what saltern %s gives (%w): is it Saltern, and of this version?",
			c.base, versionString(), err)
	}
	return nil
}

func (c *client) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return &ExitError{Code: ExitUnreachable, Err: fmt.Errorf(
		"no answer from Saltern at %s: %w; start it (saltern serve), or name its address with --http or %s",
		c.base, withoutURL(err), envHTTP)}
}

// withoutURL takes the address off an error, where the message has it already.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// refused makes an error of an answer that is none.
func (c *client) refused(response *http.Response, body []byte) error {
	var answer struct {
		Error struct{ Name, Message string }
	}
	text := response.Status
	if json.Unmarshal(body, &answer) == nil && answer.Error.Name != "" {
		text = harmless(answer.Error.Name + ": " + answer.Error.Message)
	}
	code := ExitRefused
	if response.StatusCode == http.StatusNotFound {
		code = ExitNotFound
	}
	return &ExitError{Code: code, Err: fmt.Errorf("saltern at %s says: %s", c.base, text)}
}
