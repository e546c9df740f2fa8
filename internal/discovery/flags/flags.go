// Package flags parses the command line of lanyard-discovery.
package flags

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lanyard-dev/lanyard/internal/issuer"
	"github.com/lanyard-dev/lanyard/internal/program"
)

// Name is the name of the program.
const Name = "lanyard-discovery"

// Flags are the settings of one process.
type Flags struct {
	program.Flags

	// Issuer is the URL of Lanyard's issuer. It is empty if only Mirror or SPIFFEIssuer is set.
	Issuer string
	// SPIFFEIssuer is the URL of the issuer of JWT-SVIDs. The SPIFFE bundle is below the same URL.
	// SPIFFEIssuer is empty if Mirror is set, or if no issuer of JWT-SVIDs is served.
	SPIFFEIssuer string
	// Namespace is the namespace of the KeyRings.
	Namespace string
	// Mirror is the URL of the cluster's own issuer of ServiceAccount tokens; empty if Lanyard's
	// issuers are served.
	Mirror string
	// ListenAddress is the address on which documents are served.
	ListenAddress string
	// CertFile and KeyFile are the files of the serving certificate and its key. They are read
	// again when they change. If both names are empty, documents are served without TLS, behind a
	// proxy that terminates TLS.
	CertFile, KeyFile string
}

const intro = `lanyard-discovery serves the public documents of an issuer: which keys sign its tokens. It holds public keys only.

Usage:
  lanyard-discovery [flags]

Example, for Lanyard's issuer, behind an Ingress that has the certificate:
  lanyard-discovery --issuer=https://issuer.example.com --namespace=lanyard-system

Example, for the ServiceAccounts of a cluster whose API server nobody outside can reach:
  lanyard-discovery --mirror-cluster-issuer=https://cluster.example.com
`

// Parse parses a command line, as [program.Flags.Parse] does.
func Parse(args []string, version string, out io.Writer) (f Flags, done bool, err error) {
	set := pflag.NewFlagSet(Name, pflag.ContinueOnError)
	set.StringVar(&f.Issuer, "issuer", "", "URL of Lanyard's issuer, such as https://issuer.example.com")
	set.StringVar(&f.SPIFFEIssuer, "spiffe-issuer", "",
		"URL of the issuer of JWT-SVIDs, where the SPIFFE bundle of the trust domain is served too, as /bundle")
	set.StringVar(&f.Namespace, "namespace", "", "namespace of the KeyRings (required with --issuer and --spiffe-issuer)")
	set.StringVar(&f.Mirror, "mirror-cluster-issuer", "",
		"URL of the cluster's own issuer of ServiceAccount tokens: serve the API server's documents instead of Lanyard's")
	set.StringVar(&f.ListenAddress, "listen-address", ":8443", "address on which the documents are served")
	set.StringVar(&f.CertFile, "tls-cert-file", "",
		"serving certificate, PEM; read again when it changes; default none, for a proxy in front that has TLS")
	set.StringVar(&f.KeyFile, "tls-key-file", "", "key of --tls-cert-file, PEM")
	if done, err = f.Parse(set, args, intro, version, out); done || err != nil {
		return f, done, err
	}
	return f, false, f.check()
}

func (f *Flags) check() error {
	own := f.Issuer != "" || f.SPIFFEIssuer != ""
	switch {
	case !own && f.Mirror == "":
		return errors.New("--issuer, --spiffe-issuer or --mirror-cluster-issuer is required: name the URL whose documents are served")
	case own && f.Mirror != "":
		return errors.New("--issuer and --spiffe-issuer exclude --mirror-cluster-issuer: run one process for each")
	case own && len(validation.IsDNS1123Label(f.Namespace)) > 0:
		return fmt.Errorf("--namespace: %q is not the name of a namespace", f.Namespace)
	case (f.CertFile == "") != (f.KeyFile == ""):
		return errors.New("--tls-cert-file and --tls-key-file need each other")
	case own && f.Issuer == f.SPIFFEIssuer:
		return errors.New("--spiffe-issuer must be another URL than --issuer")
	}
	for _, u := range []struct{ flag, value string }{
		{"--issuer", f.Issuer}, {"--spiffe-issuer", f.SPIFFEIssuer}, {"--mirror-cluster-issuer", f.Mirror},
	} {
		if u.value == "" {
			continue
		}
		if err := issuer.CheckURL(u.value); err != nil {
			return fmt.Errorf("%s: %w", u.flag, err)
		}
	}
	return nil
}
