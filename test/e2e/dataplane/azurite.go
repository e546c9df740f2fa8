package dataplane

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/lanyard-dev/lanyard/test/e2e/node"
)

// startTimeout bounds the start of a program. On a busy machine, a start has taken more than a minute.
const startTimeout = 3 * time.Minute

// Azurite is a running process of the program Azurite. Its blob service has some storage accounts
// in memory.
type Azurite struct {
	url *url.URL
	// accounts maps an account to the parameters of a shared access signature for the whole
	// account.
	accounts map[string]url.Values
	cancel   context.CancelFunc
	ended    chan struct{} // closed when the program has ended
}

// StartAzurite starts Azurite with these accounts. Azurite ends with [Azurite.Close] or with this
// process.
func StartAzurite(ctx context.Context, accounts ...string) (*Azurite, error) {
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	a := &Azurite{accounts: map[string]url.Values{}, cancel: cancel, ended: make(chan struct{})}
	var keys []string
	for _, name := range accounts {
		key := make([]byte, 64)
		_, _ = rand.Read(key) // never fails
		keys = append(keys, name+":"+base64.StdEncoding.EncodeToString(key))
		a.accounts[name] = sharedAccess(name, key)
	}
	cmd, err := node.Command(running, node.Azurite, "--inMemoryPersistence", "--blobHost", "127.0.0.1", "--blobPort", "0",
		"--skipApiVersionCheck", "--disableTelemetry", "--silent")
	if err != nil {
		cancel()
		return nil, err
	}
	cmd.Env = append(os.Environ(), "AZURITE_ACCOUNTS="+strings.Join(keys, ";"))
	if err := a.start(ctx, cmd); err != nil {
		cancel()
		return nil, fmt.Errorf("start Azurite: %w", err)
	}
	return a, nil
}

// start starts the program and waits until it prints its address.
func (a *Azurite) start(ctx context.Context, cmd *exec.Cmd) error {
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return err
	}
	found := make(chan string, 1)
	said := new(strings.Builder)
	go func() {
		listening := regexp.MustCompile(`listens on (http://[0-9.:]+)`)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if at := listening.FindStringSubmatch(lines.Text()); at != nil {
				found <- at[1]
				break
			}
			said.WriteString(lines.Text() + "\n")
		}
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait() // an error is expected: Close kills the program
		close(a.ended)
	}()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case at := <-found:
		a.url, err = url.Parse(at)
		return err
	case <-a.ended:
		return fmt.Errorf("it ended with %s: %s", cmd.ProcessState, said)
	case <-ctx.Done():
		a.Close()
		return ctx.Err()
	}
}

// Close ends Azurite.
func (a *Azurite) Close() {
	a.cancel()
	<-a.ended
}

// Blob returns a handler for the blob endpoint of an account, or nil for an unknown account.
// ServeBlob of the local cloud needs such handlers. The handler adds a signature to each request,
// because Azurite refuses requests without one.
func (a *Azurite) Blob(account string) http.Handler {
	signature, ok := a.accounts[account]
	if !ok {
		return nil
	}
	return &httputil.ReverseProxy{
		Transport: &http.Transport{DisableCompression: true}, // without a proxy
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(a.url)
			r.Out.Host = account + ".blob.core.windows.net" // Azurite finds the account by the host
			query := r.In.URL.RawQuery
			if query != "" {
				query += "&"
			}
			r.Out.URL.RawQuery = query + signature.Encode()
		},
	}
}

// sharedAccess returns an account's shared access signature for all operations of its blob service.
// Source: Microsoft Learn, "Create an account SAS", in the form of version 2020-08-04.
func sharedAccess(account string, key []byte) url.Values {
	const version = "2020-08-04"
	v := url.Values{
		"sv": {version}, "ss": {"b"}, "srt": {"sco"}, "sp": {"rwdlacup"}, "se": {time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339)},
	}
	mac := hmac.New(sha256.New, key)
	_, _ = io.WriteString(mac, strings.Join([]string{
		account, v.Get("sp"), v.Get("ss"), v.Get("srt"), "", v.Get("se"), "", "", version, "",
	}, "\n"))
	v.Set("sig", base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return v
}
