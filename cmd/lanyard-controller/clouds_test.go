package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/internal/controller/flags"
)

func TestClouds(t *testing.T) {
	write := func(name, content string) string {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	stack := `{"activeDirectoryEndpoint":"https://login.stack.example.com/","resourceManagerEndpoint":"https://management.stack.example.com/"}`
	for name, c := range map[string]struct {
		env  map[string]string
		says string
	}{
		"nothing is set":       {},
		"everything is set":    {env: map[string]string{"AZURE_TENANT_ID": "11111111-2222-3333-4444-555555555555", "AZURE_AUTHORITY_HOST": "https://login.microsoftonline.us/", "GCE_METADATA_HOST": "127.0.0.1:8080", "GOOGLE_CLOUD_UNIVERSE_DOMAIN": "apis-berlin-build0.goog"}},
		"a cloud of one's own": {env: map[string]string{"AZURE_ENVIRONMENT_FILEPATH": write("stack.json", stack), "AZURE_AUTHORITY_HOST": "https://login.microsoftonline.com/"}},
		"no authorities":       {map[string]string{"AWS_CA_BUNDLE": write("ca.pem", "")}, "AWS_CA_BUNDLE"},
		"no file":              {map[string]string{"AWS_CA_BUNDLE": "/nonexistent/ca.pem"}, "AWS_CA_BUNDLE"},
		"no tenant":            {map[string]string{"AZURE_TENANT_ID": "contoso"}, "AZURE_TENANT_ID"},
		"no authority":         {map[string]string{"AZURE_AUTHORITY_HOST": "https://login.microsoftonline.com.evil.example/"}, "AZURE_AUTHORITY_HOST"},
		"no environment":       {map[string]string{"AZURE_ENVIRONMENT_FILEPATH": write("empty.json", "{}")}, "AZURE_ENVIRONMENT_FILEPATH"},
		"no environment file":  {map[string]string{"AZURE_ENVIRONMENT_FILEPATH": "/nonexistent/cloud.json"}, "AZURE_ENVIRONMENT_FILEPATH"},
		"no universe":          {map[string]string{"GOOGLE_CLOUD_UNIVERSE_DOMAIN": "https://evil.example"}, "GOOGLE_CLOUD_UNIVERSE_DOMAIN"},
		"no metadata host":     {map[string]string{"GCE_METADATA_HOST": "http://169.254.169.254/x"}, "GCE_METADATA_HOST"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := newClouds(flags.Flags{}, func(name string) string { return c.env[name] })
			if c.says != "" {
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("error %v, want one that names %s", err, c.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer got.Close()
			if names := got.names(); !slices.Equal(names, []string{"aws", "azure", "gcp"}) {
				t.Errorf("clouds %v", names)
			}
			for name, provider := range got.byName() {
				if provider.GetName() != name {
					t.Errorf("%s is called %s", name, provider.GetName())
				}
			}
		})
	}
}
