// Vault-jwt serves the login of Vault's JWT plugin at the paths of Vault's API. The plugin decides
// about a login. Tests do not need a whole Vault, because they do not need Vault's tokens and
// secrets.
//
//	vault-jwt <host:port>
//
// The program is a module of its own, because of the 80 or so modules of the plugin. No other
// program of this repository needs these modules. The module also needs a newer Go than the other
// modules.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	jwtauth "github.com/hashicorp/vault-plugin-auth-jwt"
	"github.com/hashicorp/vault/sdk/logical"
)

// mount is where Vault mounts the plugin by default. Source: Vault API, "JWT/OIDC auth method".
const mount = "/v1/auth/jwt/"

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: vault-jwt <host:port>")
	}
	log.Fatal(serve(context.Background(), os.Args[1]))
}

func serve(ctx context.Context, address string) error {
	storage := &logical.InmemStorage{}
	plugin, err := jwtauth.Factory(ctx, &logical.BackendConfig{
		Logger: hclog.Default(), System: &logical.StaticSystemView{}, StorageView: storage,
	})
	if err != nil {
		return err
	}
	handler := http.NewServeMux()
	handler.HandleFunc("GET /v1/sys/health", func(http.ResponseWriter, *http.Request) {})
	handler.HandleFunc("POST "+mount, func(w http.ResponseWriter, r *http.Request) {
		request := &logical.Request{
			Operation: logical.UpdateOperation, Path: strings.TrimPrefix(r.URL.Path, mount), Storage: storage,
			Connection: &logical.Connection{RemoteAddr: "127.0.0.1"},
		}
		if err := json.NewDecoder(r.Body).Decode(&request.Data); err != nil {
			http.Error(w, "the body is not JSON", http.StatusBadRequest)
			return
		}
		// Like Vault's core, change the operation to create if the path does not exist yet.
		if checked, exists, err := plugin.HandleExistenceCheck(r.Context(), request); err == nil && checked && !exists {
			request.Operation = logical.CreateOperation
		}
		answer, err := plugin.HandleRequest(r.Context(), request)
		write(w, answer, err)
	})
	server := &http.Server{Addr: address, Handler: handler, ReadHeaderTimeout: time.Minute}
	return server.ListenAndServe()
}

// write writes a response as Vault does: with the policies of the login, or with errors. Source:
// Vault API, "HTTP API", "Error response".
func write(w http.ResponseWriter, answer *logical.Response, err error) {
	status, body := http.StatusOK, map[string]any{}
	switch {
	case err == nil && answer.IsError():
		status, err = http.StatusBadRequest, answer.Error()
	case errors.Is(err, logical.ErrPermissionDenied):
		status = http.StatusForbidden
	case err != nil:
		status = http.StatusInternalServerError
	case answer != nil && answer.Auth != nil:
		body["auth"] = map[string]any{"policies": answer.Auth.Policies, "display_name": answer.Auth.DisplayName}
	}
	if err != nil {
		body["errors"] = []string{err.Error()}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		log.Print(err)
	}
}
