// Package change lets a cloud be changed from another process. A cloud lists its changes in one
// [Table]: the server takes its routes from the table, and the client its functions.
//
// Each row names a method of the cloud and a route. The method's texts are the route's {wildcards}
// and then its query parameters, in their order. Its last parameter is the JSON body, if it is no
// text:
//
//	PutRole:          change.Put(t, "PUT /aws/accounts/{account}/roles", (*Cloud).PutRole),           // func(account string, r Role) error
//	DeleteRole:       change.Delete(t, "DELETE /aws/accounts/{account}/roles?name", (*Cloud).DeleteRole), // func(account, name string) error
package change

import (
	"context"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// Sender makes a request of the admin API. Body is nil or what becomes the JSON body.
type Sender func(ctx context.Context, method, path string, query url.Values, body any) error

// Decoder reads a request's JSON body.
type Decoder func(r *http.Request, into any) error

// Table is the table of a cloud's changes. C is the cloud's type, such as *aws.Cloud. Its zero
// value is a table for a server.
type Table[C any] struct {
	// Send makes the requests of the client's functions. A table for a server has none.
	Send Sender

	rows []row[C]
}

type row[C any] struct {
	pattern string
	serve   func(cloud C, r *http.Request, decode Decoder) error
}

// Routes are the changes of a cloud by their pattern for [http.ServeMux].
func (t *Table[C]) Routes(cloud C, decode Decoder) map[string]func(*http.Request) error {
	routes := map[string]func(*http.Request) error{}
	for _, row := range t.rows {
		routes[row.pattern] = func(r *http.Request) error { return row.serve(cloud, r, decode) }
	}
	return routes
}

// route is a row's route, such as "DELETE /a/{b}?c".
type route struct {
	method, path string
	wildcards    []string
	parameters   []string // of the query
}

var wildcard = regexp.MustCompile(`\{(\w+)\}`)

func parseRoute(s string) route {
	method, target, _ := strings.Cut(s, " ")
	path, query, _ := strings.Cut(target, "?")
	r := route{method: method, path: path}
	for _, m := range wildcard.FindAllStringSubmatch(path, -1) {
		r.wildcards = append(r.wildcards, m[1])
	}
	if query != "" {
		r.parameters = strings.Split(query, "&")
	}
	return r
}

// read is the client's way in reverse: the texts of a request.
func (t route) read(r *http.Request) []string {
	var texts []string
	for _, name := range t.wildcards {
		texts = append(texts, r.PathValue(name))
	}
	for _, name := range t.parameters {
		texts = append(texts, r.URL.Query().Get(name))
	}
	return texts
}

// target is the path and query for texts.
func (t route) target(texts []string) (string, url.Values) {
	path, query := t.path, url.Values{}
	for i, name := range t.wildcards {
		path = strings.Replace(path, "{"+name+"}", url.PathEscape(texts[i]), 1)
	}
	for i, name := range t.parameters {
		query.Set(name, texts[len(t.wildcards)+i])
	}
	return path, query
}

// add adds a row with a body of type B, or without one if B is noBody. It returns the client's
// function.
func add[C, B any](t *Table[C], pattern string, do func(cloud C, texts []string, body B) error) func(ctx context.Context, body B, texts ...string) error {
	route := parseRoute(pattern)
	t.rows = append(t.rows, row[C]{route.method + " " + route.path, func(cloud C, r *http.Request, decode Decoder) error {
		var body B
		if _, none := any(body).(noBody); !none {
			if err := decode(r, &body); err != nil {
				return err
			}
		}
		return do(cloud, route.read(r), body)
	}})
	return func(ctx context.Context, body B, texts ...string) error {
		path, query := route.target(texts)
		if _, none := any(body).(noBody); none {
			return t.Send(ctx, route.method, path, query, nil)
		}
		return t.Send(ctx, route.method, path, query, body)
	}
}

type noBody struct{}

// Set is a row whose method takes a body only.
func Set[C, B any](t *Table[C], route string, do func(C, B) error) func(context.Context, B) error {
	send := add(t, route, func(cloud C, _ []string, body B) error { return do(cloud, body) })
	return func(ctx context.Context, body B) error { return send(ctx, body) }
}

// Put is a row whose method takes a text and a body.
func Put[C, B any](t *Table[C], route string, do func(C, string, B) error) func(context.Context, string, B) error {
	send := add(t, route, func(cloud C, texts []string, body B) error { return do(cloud, texts[0], body) })
	return func(ctx context.Context, in string, body B) error { return send(ctx, body, in) }
}

// PutIn is a row whose method takes two texts and a body.
func PutIn[C, B any](t *Table[C], route string, do func(C, string, string, B) error) func(context.Context, string, string, B) error {
	send := add(t, route, func(cloud C, texts []string, body B) error { return do(cloud, texts[0], texts[1], body) })
	return func(ctx context.Context, in, of string, body B) error { return send(ctx, body, in, of) }
}

// Clear is a row whose method takes nothing.
func Clear[C any](t *Table[C], route string, do func(C)) func(context.Context) error {
	send := add(t, route, func(cloud C, _ []string, _ noBody) error {
		do(cloud)
		return nil
	})
	return func(ctx context.Context) error { return send(ctx, noBody{}) }
}

// Delete is a row whose method takes two texts.
func Delete[C any](t *Table[C], route string, do func(C, string, string) error) func(context.Context, string, string) error {
	send := add(t, route, func(cloud C, texts []string, _ noBody) error { return do(cloud, texts[0], texts[1]) })
	return func(ctx context.Context, in, name string) error { return send(ctx, noBody{}, in, name) }
}

// DeleteIn is a row whose method takes three texts.
func DeleteIn[C any](t *Table[C], route string, do func(C, string, string, string) error) func(context.Context, string, string, string) error {
	send := add(t, route, func(cloud C, texts []string, _ noBody) error { return do(cloud, texts[0], texts[1], texts[2]) })
	return func(ctx context.Context, in, of, name string) error { return send(ctx, noBody{}, in, of, name) }
}
