package cloudtest

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest/azure"
	"github.com/lanyard-dev/lanyard/cloudtest/gcp"
)

// DialError says that the cloud refused a connection of [Cloud.Transport].
type DialError struct {
	// Address is the address that was dialled.
	Address string
	// Reason says why the connection was refused.
	Reason string
}

// Error returns the address and the reason.
func (e *DialError) Error() string { return "cloudtest: dial " + e.Address + ": " + e.Reason }

// Transport returns a transport for clients in this process. It reaches only the cloud's hosts, and
// trusts only the cloud's CA. It needs no port, no proxy and no environment variables. If the cloud
// has metadata servers, the transport also reaches them, as http://metadata.google.internal and
// http://169.254.169.254. Each call returns a new transport with its own connection pool.
func (c *Cloud) Transport() *http.Transport {
	return &http.Transport{
		DialContext:           c.dial,
		TLSClientConfig:       &tls.Config{RootCAs: c.roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:   handshakeTimeout,
		IdleConnTimeout:       30 * time.Second,
		MaxIdleConnsPerHost:   8,
		ExpectContinueTimeout: time.Second,
	}
}

// dial connects to a host of the cloud in memory.
func (c *Cloud) dial(ctx context.Context, _, address string) (net.Conn, error) {
	select {
	case <-c.closed:
		return nil, ErrClosed
	default:
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("cloudtest: dial %s: %w", address, err)
	}
	plain := (address == gcp.MetadataHost+":80" && c.gcp.HasMetadata()) || (address == azure.MetadataHost+":80" && c.azure.HasMetadata())
	host, refused := c.admit(address, plain)
	if refused != nil {
		c.journal.Record(*refused)
		return nil, &DialError{Address: address, Reason: refused.Reason}
	}
	client, end := net.Pipe()
	server := &pipe{Conn: end, cloud: c}
	if !c.keep(server) {
		return nil, ErrClosed
	}
	if plain {
		go c.conns.put(context.WithoutCancel(ctx), server)
		return client, nil
	}
	go c.terminate(context.WithoutCancel(ctx), server, host)
	return client, nil
}

// pipe is the cloud's end of an in-memory connection. [Cloud.Close] closes the pipe, and not the
// TLS connection over the pipe. A TLS connection sends an alert before it closes. If nobody reads
// the pipe, sending the alert fails only after seconds.
type pipe struct {
	net.Conn

	cloud *Cloud
}

// Close closes the connection and removes p from the cloud's pipes.
func (p *pipe) Close() error {
	p.cloud.mu.Lock()
	delete(p.cloud.pipes, p)
	p.cloud.mu.Unlock()
	return p.Conn.Close()
}

// keep adds p to the pipes that [Cloud.Close] closes. It returns false if the cloud is closed.
func (c *Cloud) keep(p *pipe) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pipes == nil {
		return false
	}
	c.pipes[p] = struct{}{}
	return true
}
