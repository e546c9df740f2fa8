package local

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/setting"
	"github.com/lanyard-dev/lanyard/internal/wholefile"
	"github.com/lanyard-dev/lanyard/internal/yamlfile"
)

// ParseCloud reads a cloudtest.Config from YAML or JSON, and makes the same checks as StartCloud.
// Errors name the file. Each error about the YAML or a field is a *yamlfile.Error; several errors
// are joined.
func ParseCloud(file string, data []byte) (cloudtest.Config, error) {
	documents, err := yamlfile.Read(file, data)
	if err != nil {
		return cloudtest.Config{}, err
	}
	var cfg cloudtest.Config
	if len(documents) != 1 {
		return cfg, fmt.Errorf("%s: the description of a cloud is one YAML document, not %d", file, len(documents))
	}
	if err := documents[0].Decode(&cfg); err != nil {
		return cloudtest.Config{}, err
	}
	cloud, err := cloudtest.New(cfg)
	if err != nil {
		path := ""
		if invalid, ok := errors.AsType[*setting.Error](err); ok {
			path, err = invalid.Field, invalid
		}
		return cloudtest.Config{}, documents[0].At(path, err)
	}
	return cfg, cloud.Close()
}

// CloudOptions configure [StartCloud].
type CloudOptions struct {
	// Dir is the folder into which the cloud writes its address and its CA, for [ReadCloud]. It
	// must be empty, absent, or left by a former cloud. Required.
	Dir string
	// Config describes the cloud.
	Config cloudtest.Config
	// Listen is the loopback address of the cloud's proxy, host:port. Default: 127.0.0.1 and a free
	// port.
	Listen string
	// ProgramUser is an IAM user of [Account]. In clusters of this cloud, Lanyard's programs get
	// the access key of this user. Default: the programs have no identity of their own at AWS.
	ProgramUser string
}

// Cloud is a running local cloud with registries and buckets. Clusters can use it ([StartCluster]).
// It is safe for concurrent use.
type Cloud struct {
	*cloudtest.Cloud

	folder *folder
	planes *planes
	key    aws.AccessKey // access key of the user Publisher
	own    aws.AccessKey // the key of Lanyard's programs; zero if they have no identity at AWS
	cancel context.CancelFunc
	served chan error
	log    *os.File

	mu      sync.Mutex        // guards pushed and issuers
	pushed  map[string]string // digest by repository URL and tag
	issuers map[string]bool   // hosts of the clusters' issuers
}

// StartCloud starts a cloud that lives until [Cloud.Stop]. The users [Publisher] and
// [CloudOptions.ProgramUser] of [Account] get an access key each, if they exist.
func StartCloud(ctx context.Context, o CloudOptions) (*Cloud, error) {
	f, err := claim(ctx, o.Dir)
	if err != nil {
		return nil, err
	}
	c, err := startCloud(ctx, f, o)
	if err != nil {
		return nil, errors.Join(err, f.release())
	}
	return c, nil
}

func startCloud(ctx context.Context, f *folder, o CloudOptions) (_ *Cloud, err error) {
	cfg, key := withKey(o.Config, Publisher)
	cfg, own := withKey(cfg, o.ProgramUser)
	cloud, err := cloudtest.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("make the local cloud: %w", err)
	}
	c := &Cloud{
		Cloud: cloud, folder: f, key: key, own: own, served: make(chan error, 1),
		pushed: map[string]string{}, issuers: map[string]bool{},
	}
	ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx)) // Cloud.end cancels it
	defer func() {
		if err != nil {
			err = errors.Join(err, c.end())
		}
	}()
	c.log, err = os.OpenFile(f.join("registry.log"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the registry's log: %w", err)
	}
	if c.planes, err = newPlanes(cloud, cfg, newRegistries(ctx, c.log)); err != nil {
		return nil, err
	}
	listen := cmp.Or(o.Listen, "127.0.0.1:0")
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("listen for the local cloud; name a free loopback address with --listen, such as 127.0.0.1:0: %w", err)
	}
	go func() { c.served <- c.Serve(ctx, ln) }()
	state := CloudState{ProxyURL: "http://" + ln.Addr().String(), CAFile: f.join(caName), PID: os.Getpid()}
	// Wait until the proxy runs. If Serve refuses the listener, awaitProxy returns Serve's error.
	if err := c.awaitProxy(ctx); err != nil {
		return nil, err
	}
	if err := c.WriteCA(state.CAFile); err != nil {
		return nil, err
	}
	if err := state.write(f.join(stateName)); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Cloud) awaitProxy(ctx context.Context) error {
	return poll(ctx, pollInterval, func(context.Context) (bool, error) {
		select {
		case err := <-c.served:
			c.served <- err
			return false, err
		default:
			return c.ProxyURL() != "", nil
		}
	})
}

// CAFile returns the path of the PEM file with the cloud's CA certificate.
func (c *Cloud) CAFile() string { return c.folder.join(caName) }

// Env returns the variables with which another program uses the cloud, as NAME=VALUE.
func (c *Cloud) Env() []string { return c.Cloud.Env(c.CAFile()) }

// identityEnv returns the AWS variables with the access key of [CloudOptions.ProgramUser].
func (c *Cloud) identityEnv() []string {
	if c.own == (aws.AccessKey{}) {
		return nil
	}
	return []string{"AWS_ACCESS_KEY_ID=" + c.own.ID, "AWS_SECRET_ACCESS_KEY=" + c.own.Secret}
}

// publish serves an issuer's documents under its host until [Cloud.withdraw]. A host that already
// has an issuer is an error.
func (c *Cloud) publish(host string, documents http.Handler) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.issuers[host] {
		return fmt.Errorf("host %s has the documents of another cluster; give this one an issuer with another host", host)
	}
	if err := c.Handle(host, documents); err != nil {
		return err
	}
	c.issuers[host] = true
	return nil
}

// withdraw stops serving an issuer's documents under its host.
func (c *Cloud) withdraw(host string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.issuers, host)
	return c.Handle(host, nil)
}

// Stop ends the cloud and unlocks its folder. Stop the clusters in the cloud first.
func (c *Cloud) Stop() error { return errors.Join(c.end(), c.folder.release()) }

func (c *Cloud) end() error {
	c.cancel()
	err := c.Close()
	if removeErr := os.Remove(c.folder.join(stateName)); !errors.Is(removeErr, fs.ErrNotExist) {
		err = errors.Join(err, removeErr)
	}
	if c.log != nil {
		err = errors.Join(err, c.log.Close())
	}
	return err
}

// CloudState is the content of the file that a running cloud writes into its folder.
type CloudState struct {
	// ProxyURL is the proxy's URL. The admin API has the same address.
	ProxyURL string `json:"proxyURL"`
	// CAFile is the absolute path of the PEM file with the cloud's CA certificate.
	CAFile string `json:"caFile"`
	// PID is the ID of the process that runs the cloud.
	PID int `json:"pid"`
}

// ErrNoCloud says that no running local cloud has its files in the folder given to [ReadCloud].
var ErrNoCloud = errors.New("no local cloud runs here")

// ReadCloud reads the state file in a folder, and asks the cloud for its CA. The error is
// ErrNoCloud if the cloud of this folder does not run.
func ReadCloud(ctx context.Context, dir string) (CloudState, error) {
	data, err := os.ReadFile(filepath.Join(dir, stateName)) //nolint:gosec // the folder is the caller's
	if errors.Is(err, fs.ErrNotExist) {
		return CloudState{}, fmt.Errorf("folder %s: %w; start one with lanyard up or lanyard cloud, or name its folder with --dir",
			dir, ErrNoCloud)
	}
	if err != nil {
		return CloudState{}, fmt.Errorf("read the cloud's address: %w", err)
	}
	var s CloudState
	if err := json.Unmarshal(data, &s); err != nil {
		return CloudState{}, fmt.Errorf("read the cloud's address in %s: %w", filepath.Join(dir, stateName), err)
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	// Compare the CA: after a crash of the cloud, another program may listen on the cloud's port.
	here, err := (&cloudtest.Admin{URL: s.ProxyURL}).CAPEM(ctx)
	noted, noteErr := os.ReadFile(s.CAFile)
	if err != nil || noteErr != nil || !bytes.Equal(here, noted) {
		return CloudState{}, fmt.Errorf("folder %s: %w (it was at %s); start it again with lanyard up or lanyard cloud",
			dir, ErrNoCloud, s.ProxyURL)
	}
	return s, nil
}

// answerTimeout bounds a request to a cloud on this machine.
const answerTimeout = 10 * time.Second

func (s CloudState) write(path string) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("note the cloud's address: %w", err)
	}
	if err := wholefile.Write(path, append(data, '\n')); err != nil {
		return fmt.Errorf("note the cloud's address: %w", err)
	}
	return nil
}
