package gcp

import (
	"net/http"
	"strings"

	"github.com/lanyard-dev/lanyard/cloudtest/service"
)

// projectMethods returns the methods of the Cloud Resource Manager API. Source: Cloud Resource
// Manager API v1, projects.
func projectMethods() []managementMethod {
	return []managementMethod{
		{
			name: "GetProject", api: "google.cloudresourcemanager.v1.Projects",
			verb: http.MethodGet, path: "projects/*", do: (*Cloud).getProject,
		},
	}
}

// projectAnswer is a project in the API's JSON.
type projectAnswer struct {
	ProjectNumber  string `json:"projectNumber"`
	ProjectID      string `json:"projectId"`
	LifecycleState string `json:"lifecycleState"`
	Name           string `json:"name"`
}

// getProject returns a project with its number. A refusal has the message that version 1 of the API
// uses, and no ErrorInfo.
func (c *Cloud) getProject(call *managementCall) (any, *service.Refusal) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	p, refusal := c.require(call, call.names[0], permProjectGet, nil)
	if refusal != nil {
		refusal.Message, refusal.Detail = "The caller does not have permission", nil
		return nil, refusal
	}
	return projectAnswer{ProjectNumber: p.number, ProjectID: p.id, LifecycleState: "ACTIVE", Name: p.id}, nil
}

// usageMethods returns the methods of the Service Usage API. Source: Service Usage API, services.
func usageMethods() []managementMethod {
	return []managementMethod{{
		name: "BatchEnableServices", api: "google.api.serviceusage.v1.ServiceUsage",
		verb: http.MethodPost, path: "projects/*/services:batchEnable",
		do: (*Cloud).enableServices,
	}}
}

// maxServices is the maximum number of services in one call. Source: Service Usage API,
// services.batchEnable.
const maxServices = 20

// enableServices changes nothing: in every project, all services of the local cloud are enabled
// from the beginning. It returns the operation that Google returns if there is nothing to do.
func (c *Cloud) enableServices(call *managementCall) (any, *service.Refusal) {
	var q struct {
		ServiceIDs []string `json:"serviceIds"`
	}
	if refusal := call.readJSON(&q); refusal != nil {
		return nil, refusal
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	if _, refusal := c.require(call, call.names[0], permServiceEnable, nil); refusal != nil {
		refusal.Message = "Permission denied to enable service [" + strings.Join(q.ServiceIDs, ", ") + "]"
		return nil, refusal
	}
	if n := len(q.ServiceIDs); n == 0 || n > maxServices {
		return nil, invalidArgument("Between 1 and 20 services can be enabled in one call.")
	}
	for _, id := range q.ServiceIDs {
		// In every universe, service names end in the public universe's domain.
		api, ok := strings.CutSuffix(id, "."+DefaultUniverse)
		if !ok || apis()[api] == "" {
			return nil, invalidArgument("Not found or permission denied for service(s): " + id + ".").
				Because("the local cloud has no such service")
		}
	}
	return operation{Name: "operations/noop.DONE_OPERATION", Done: true}, nil
}

// operation is google.longrunning.Operation.
type operation struct {
	Name     string         `json:"name"`
	Metadata map[string]any `json:"metadata,omitempty"`
	Done     bool           `json:"done,omitempty"`
}
