package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/lanyard-dev/lanyard/cloudtest"
)

// ParseCloud reads the description of a cloud from YAML or JSON. Its fields are those of cloudtest.Config; one that is not
// known, or that stands twice, is an error that names it.
func ParseCloud(data []byte) (cloudtest.Config, error) {
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return cloudtest.Config{}, fmt.Errorf("read the cloud's description: %w", err)
	}
	cfg, err := cloudtest.ParseConfig(asJSON)
	if err != nil {
		return cloudtest.Config{}, fmt.Errorf("read the cloud's description: %w", err)
	}
	return cfg, nil
}

// CloudOptions say how a local cloud runs by itself.
type CloudOptions struct {
	// Dir is the folder that the cloud notes its address and its CA in, for [ReadCloud]. It must be empty, absent, or left
	// by a former world. Required.
	Dir string
	// Config is what is in the cloud.
	Config cloudtest.Config
	// Listen is the loopback address of its proxy, host:port. Default: 127.0.0.1 and a free port.
	Listen string
}

// Cloud is a running local cloud with registries and buckets behind it.
type Cloud struct {
	*cloudtest.Cloud

	folder *folder
	planes *planes
	cancel context.CancelFunc
	served chan error
	log    *os.File
}

// StartCloud starts a cloud that lives until [Cloud.Stop].
func StartCloud(ctx context.Context, o CloudOptions) (*Cloud, error) {
	f, err := claim(ctx, o.Dir)
	if err != nil {
		return nil, err
	}
	c, err := startCloud(ctx, f, o.Config, o.Listen)
	if err != nil {
		return nil, errors.Join(err, f.release())
	}
	return c, nil
}

func startCloud(ctx context.Context, f *folder, cfg cloudtest.Config, listen string) (_ *Cloud, err error) {
	cloud, err := cloudtest.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("make the local cloud: %w", err)
	}
	c := &Cloud{Cloud: cloud, folder: f, served: make(chan error, 1)}
	ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx)) // its end is in end
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
	if listen == "" {
		listen = "127.0.0.1:0"
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("listen for the local cloud; name a free loopback address with --listen, such as 127.0.0.1:0: %w", err)
	}
	go func() { c.served <- c.Serve(ctx, ln) }()
	state := CloudState{ProxyURL: "http://" + ln.Addr().String(), CAFile: f.join(caName), PID: os.Getpid()}
	// Serve knows the address once it runs; a listener that it refuses ends it.
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
	return poll(ctx, func(context.Context) (bool, error) {
		select {
		case err := <-c.served:
			c.served <- err // for end
			return false, err
		default:
			return c.ProxyURL() != "", nil
		}
	})
}

// CAFile is the path of the cloud's CA, PEM.
func (c *Cloud) CAFile() string { return c.folder.join(caName) }

// Stop ends the cloud and gives its folder back.
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

// CloudState is what a running cloud notes in its folder.
type CloudState struct {
	// ProxyURL is the proxy's URL, with the admin API beside it.
	ProxyURL string `json:"proxyURL"`
	// CAFile is the absolute path of the cloud's CA, PEM.
	CAFile string `json:"caFile"`
	// PID is the process that runs the cloud.
	PID int `json:"pid"`
}

// ErrNoCloud says that no cloud runs for a folder.
var ErrNoCloud = errors.New("no local cloud runs here")

// ReadCloud reads what the cloud of a folder noted, and asks it whether it is there. The error is ErrNoCloud if it is not.
func ReadCloud(ctx context.Context, dir string) (CloudState, error) {
	data, err := os.ReadFile(filepath.Join(dir, stateName)) //nolint:gosec // the folder is the caller's
	if errors.Is(err, fs.ErrNotExist) {
		return CloudState{}, fmt.Errorf("folder %s: %w; start one with lanyard up or lanyard cloud, or name its folder with --dir", dir, ErrNoCloud)
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
	// A port that a crashed cloud had may be another program's by now.
	here, err := (&cloudtest.Admin{URL: s.ProxyURL}).CAPEM(ctx)
	if err == nil {
		err = s.checkCA(here)
	}
	if err != nil {
		return CloudState{}, fmt.Errorf("folder %s: %w (it was at %s); start it again with lanyard up or lanyard cloud", dir, ErrNoCloud, s.ProxyURL)
	}
	return s, nil
}

// answerTimeout bounds the answer of a cloud on this machine.
const answerTimeout = 10 * time.Second

func (s CloudState) checkCA(pem []byte) error {
	noted, err := os.ReadFile(s.CAFile)
	if err != nil {
		return fmt.Errorf("read the cloud's CA: %w", err)
	}
	if !bytes.Equal(pem, noted) {
		return errors.New("what answers there has another CA")
	}
	return nil
}

func (s CloudState) write(path string) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("note the cloud's address: %w", err)
	}
	if err := writeFile(path, append(data, '\n')); err != nil {
		return fmt.Errorf("note the cloud's address: %w", err)
	}
	return nil
}

// writeFile writes a file that only its owner may read. It appears whole or not at all.
func writeFile(path string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}
