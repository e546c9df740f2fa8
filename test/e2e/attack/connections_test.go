package attack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	// floodAddress and floodTLS are environment variables of a process that [runFlood] starts.
	// floodAddress has the address of the port. If the port has TLS, floodTLS is "true".
	floodAddress, floodTLS = "ATTACK_FLOOD_ADDRESS", "ATTACK_FLOOD_TLS"
	// headerTimeout is how long a port waits for the header of a connection's first request.
	headerTimeout = 5 * time.Second
)

// floodTime is the longest time of a flood. Then its process ends, even if the process of the tests
// is gone.
const floodTime = 2 * time.Minute

// floodResult is the result of a flood of connections to a port.
type floodResult struct {
	// From and To are when the flood began to open connections, and when all were open.
	From, To time.Time
	// Opened is how many connections of each group of [openings] the flood could open.
	Opened []int
	// StillOpen is the number of connections that the port had not closed at the end.
	StillOpen int
}

// runFlood opens more connections to a port than the port keeps open, see [openings]. A process of
// its own opens them, since the flood comes from another Pod. In the process of the tests, the flood
// would delay the requests whose answer times the tests measure.
func runFlood(ctx context.Context, address string, withTLS bool) (floodResult, error) {
	program, err := os.Executable()
	if err != nil {
		return floodResult{}, err
	}
	process := exec.CommandContext(ctx, program, "-test.short="+strconv.FormatBool(testing.Short()))
	process.Env = append(os.Environ(), floodAddress+"="+address, floodTLS+"="+strconv.FormatBool(withTLS))
	var output, failures bytes.Buffer
	process.Stdout, process.Stderr = &output, &failures
	if err := process.Run(); err != nil {
		return floodResult{}, fmt.Errorf("the process of the flood: %w: %s", err, &failures)
	}
	var result floodResult
	err = json.Unmarshal(output.Bytes(), &result)
	return result, err
}

// runAsFlood is the main function of a process that [runFlood] started. It prints the result of the
// flood to the standard output. The argument address is the address of the port.
func runAsFlood(ctx context.Context, address string) error {
	flag.Parse() // testing.Short needs the flags
	ctx, stop := context.WithTimeout(ctx, floodTime)
	defer stop()
	result := floodResult{From: time.Now()}
	var all []net.Conn
	for _, group := range openAll(ctx, address, os.Getenv(floodTLS) == "true") {
		all = append(all, group...)
		result.Opened = append(result.Opened, len(group))
	}
	result.To = time.Now()
	// After headerTimeout, the port closes connections without a request.
	time.Sleep(lasting(time.Second, headerTimeout))
	stop()
	result.StillOpen = closeAll(all)
	return json.NewEncoder(os.Stdout).Encode(result)
}

// opening describes connections of clients without credentials: how many there are, and what each
// connection sends.
type opening struct {
	number int
	begin  []byte // sent at once
	drips  bool   // after begin, the connection sends one more byte every second
	tls    bool   // with a TLS handshake, if the port has TLS
}

// openings returns groups of connections, and what the connections of each group send. The
// strangers open all these connections to one port. The connections are more than maxOpen, so new
// connections replace others.
func openings() []opening {
	idle, sending := maxOpen+100, 60
	if !testing.Short() {
		idle, sending = 10_000, 600
	}
	header := []byte("GET / HTTP/1.1\r\nHost: lanyard\r\nX-Long: " + strings.Repeat("x", 900<<10))
	body := []byte("POST / HTTP/1.1\r\nHost: lanyard\r\nContent-Length: 1000000000\r\n\r\n")
	return []opening{
		{number: idle},
		{number: sending / 4, tls: true},
		{number: sending, begin: header, drips: true, tls: true},
		{number: sending / 4, begin: body, drips: true, tls: true},
	}
}

// openAll opens all connections of [openings]. It returns the open connections of each group. Their
// data is sent in the background until ctx ends.
func openAll(ctx context.Context, address string, withTLS bool) [][]net.Conn {
	groups := openings()
	open := make([][]net.Conn, len(groups))
	var mu sync.Mutex // guards open
	var running sync.WaitGroup
	for i, o := range groups {
		next := make(chan struct{}, o.number)
		for range o.number {
			next <- struct{}{}
		}
		close(next)
		for range 4 {
			running.Go(func() {
				for range next {
					if conn, err := dial(ctx, address, withTLS && o.tls); err == nil {
						go o.send(ctx, conn)
						mu.Lock()
						open[i] = append(open[i], conn)
						mu.Unlock()
					}
				}
			})
		}
	}
	running.Wait()
	return open
}

// closeAll closes connections. It returns the number of connections that the port had not closed.
func closeAll(all []net.Conn) int {
	var left atomic.Int64
	var running sync.WaitGroup
	deadline := time.Now().Add(lasting(500*time.Millisecond, 2*time.Second))
	for _, conn := range all {
		running.Go(func() {
			defer conn.Close()
			_ = conn.SetReadDeadline(deadline)
			if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
				left.Add(1)
			}
		})
	}
	running.Wait()
	return int(left.Load())
}

// send sends o.begin over a connection. If o.drips is true, send then sends one byte every second,
// until ctx ends or the connection breaks.
func (o opening) send(ctx context.Context, conn net.Conn) {
	for data := o.begin; ctx.Err() == nil; data = []byte("x") {
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
		if _, err := conn.Write(data); err != nil || !o.drips {
			return
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}
