package creds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker-credential-helpers/credentials"

	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
	"github.com/lanyard-dev/lanyard/internal/yamlfile"
)

// HelperFile is the environment variable with the path of the credential helper's configuration.
// Default: lanyard/credentials.yaml in the folder of XDG_CONFIG_HOME, else in ~/.config.
const HelperFile = "LANYARD_CREDENTIALS_FILE"

// helperTimeout is how long the credential helper may take to answer one request.
const helperTimeout = 60 * time.Second

// Helper answers requests in the protocol of Docker's credential helpers. The author of a
// Dockerfile can cause a request for any host, by naming an image. So Helper gives credentials only
// to the hosts in its own configuration.
type Helper struct {
	// Process has what package creds needs from the process.
	Process Process
	// Home is the user's home folder; empty if there is none.
	Home string
	// In and Out are the streams of the protocol. Advice for people goes to Err.
	In       io.Reader
	Out, Err io.Writer
}

// helperConfig is the helper's configuration.
type helperConfig struct {
	// Registries are the registries that get a credential, by their exact host[:port].
	Registries map[string]helperEntry `json:"registries"`
}

// helperEntry says which credential a registry gets.
type helperEntry struct {
	Choice

	// User is the user name for a token. Default: the user that an annotation of the ServiceAccount
	// or WorkloadIdentity names, else [DefaultUser].
	User string `json:"user,omitempty"`
}

// HelperActions returns the names of the protocol's requests: get, list, store and erase.
func HelperActions() []string {
	return []string{credentials.ActionGet, credentials.ActionList, credentials.ActionStore, credentials.ActionErase}
}

// Run answers one request of the protocol. Before it returns an error, it writes the error to Out,
// as the protocol requires.
func (h *Helper) Run(ctx context.Context, action string) error {
	ctx, cancel := context.WithTimeout(ctx, helperTimeout)
	defer cancel()
	err := credentials.HandleCommand(answers{
		get:  func(server string) (Credential, error) { return h.get(ctx, server) },
		list: h.list,
	}, action, io.LimitReader(h.In, maxToken), h.Out)
	if err != nil {
		_, _ = fmt.Fprintln(h.Out, err)
	}
	return err
}

// answers implements credentials.Helper.
type answers struct {
	get  func(server string) (Credential, error)
	list func() (map[string]string, error)
}

var errStored = errors.New("docker-credential-lanyard stores nothing: " +
	"its credentials are short-lived and come from its own configuration; " +
	"for a user and a password of your own, leave the registry out of credHelpers in Docker's config.json")

// Add implements credentials.Helper: docker login stores nothing here.
func (answers) Add(*credentials.Credentials) error { return errStored }

// Delete implements credentials.Helper: docker logout has nothing to erase.
func (answers) Delete(string) error { return errStored }

// Get implements credentials.Helper.
func (a answers) Get(server string) (user, secret string, err error) {
	c, err := a.get(server)
	if err != nil {
		return "", "", err
	}
	return c.User, c.Secret.Reveal(), nil
}

// List implements credentials.Helper.
func (a answers) List() (map[string]string, error) { return a.list() }

// get returns the credential of a registry.
func (h *Helper) get(ctx context.Context, server string) (Credential, error) {
	config, err := h.read()
	if err != nil {
		return Credential{}, err
	}
	host, ok := serverHost(server)
	entry, known := config.Registries[host]
	if !ok || !known {
		return Credential{}, credentials.NewErrCredentialsNotFound()
	}
	flags := New(h.Process)
	flags.Choice = entry.Choice
	c, err := flags.IssueForRegistry(ctx, Receiver{Image: host})
	if err != nil {
		return Credential{}, fmt.Errorf("%s: %w", host, err)
	}
	c.User = cmp.Or(entry.User, c.User)
	return c, nil
}

// list returns the user name of each registry: the user in the helper's configuration, or
// [DefaultUser]. It does not request credentials.
func (h *Helper) list() (map[string]string, error) {
	config, err := h.read()
	users := make(map[string]string)
	for host, entry := range config.Registries {
		users[host] = cmp.Or(entry.User, DefaultUser)
	}
	return users, err
}

// serverHost returns host[:port] of the server in Docker's request. The argument may have a scheme
// and a path. serverHost refuses every scheme except https.
func serverHost(server string) (string, bool) {
	scheme, rest, found := strings.Cut(server, "://")
	if !found {
		rest = server
	} else if scheme != "https" {
		return "", false
	}
	host, _, _ := strings.Cut(rest, "/")
	return lowerHost(host), true
}

// lowerHost converts only A-Z to lower case. strings.ToLower would convert the letter İ to i, and
// so turn one host's name into another host's name.
func lowerHost(host string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, host)
}

// path returns the path of the configuration; empty if there is no home.
func (h *Helper) path() string {
	if path := h.Process.Env(HelperFile); path != "" {
		return path
	}
	folder := h.Process.Env("XDG_CONFIG_HOME")
	if !filepath.IsAbs(folder) { // a relative path is ignored (XDG Base Directory Specification)
		if h.Home == "" {
			return ""
		}
		folder = filepath.Join(h.Home, ".config")
	}
	return filepath.Join(folder, "lanyard", "credentials.yaml")
}

// read reads and checks the configuration. Without a file nobody gets a credential.
func (h *Helper) read() (helperConfig, error) {
	var config helperConfig
	path := h.path()
	data, err := os.ReadFile(path) //nolint:gosec // the user's own
	if errors.Is(err, fs.ErrNotExist) {
		_, _ = fmt.Fprintf(h.Err, "docker-credential-lanyard: there is no file %q, so no registry gets a credential\n", path)
		return config, nil
	}
	if err != nil {
		return config, err
	}
	documents, err := yamlfile.Read(path, data)
	if err != nil {
		return config, err
	}
	if len(documents) != 1 {
		return config, fmt.Errorf("%s has %d YAML documents; write one", path, len(documents))
	}
	file := documents[0]
	if err := file.Decode(&config); err != nil {
		return config, err
	}
	for _, host := range slices.Sorted(maps.Keys(config.Registries)) {
		if err := checkEntry(host, config.Registries[host]); err != nil {
			return helperConfig{}, file.At(fmt.Sprintf("registries[%q]", host), err)
		}
	}
	return config, nil
}

// checkEntry refuses an entry that could not work, or whose credential the registry could use
// elsewhere.
func checkEntry(host string, entry helperEntry) error {
	if parsed, err := oci.ParseURL("oci://" + host + "/x"); err != nil || parsed.Host() != host {
		return fmt.Errorf("%q is not host or host:port of a registry, in lower case", host)
	}
	if err := entry.check(fieldOf); err != nil {
		return err
	}
	switch entry.Creds {
	case "":
		if entry.TokenFile == "" {
			return errors.New("write creds or tokenFile: which credential the registry gets")
		}
	case SpiffeCertificate:
		return fmt.Errorf("creds: Docker's protocol has no certificates, so %s does not work; use another, or Docker's certs.d",
			SpiffeCertificate)
	case AWS, Azure, GCP:
		return checkCloudHost(entry.Creds, host)
	case ServiceAccountToken, WorkloadIdentityToken, SpiffeJWT, GitHubOIDCToken:
		if len(entry.Audiences) == 0 && entry.SAToken == "" {
			return errors.New("write audiences: the receiver of the token, such as " + host)
		}
	case GitLabOIDCToken: // needs no audiences: GitLab's configuration names the audience
	}
	return nil
}

// fieldOf returns the field of an entry for a flag: saName for sa-name.
func fieldOf(flag string) string {
	words := strings.Split(flag, "-")
	for i, word := range words[1:] {
		words[i+1] = strings.ToUpper(word[:1]) + word[1:]
	}
	return strings.Join(words, "")
}
