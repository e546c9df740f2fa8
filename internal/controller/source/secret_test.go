package source

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lanyard-dev/lanyard/internal/controller/source/sourcetest"
)

func TestReadProxy(t *testing.T) {
	for name, c := range map[string]struct {
		data map[string]string
		want string
		says string
	}{
		"plain":              {data: map[string]string{"address": "http://proxy.example.com:3128"}, want: "http://proxy.example.com:3128"},
		"with a slash":       {data: map[string]string{"address": "https://proxy.example.com/"}, want: "https://proxy.example.com"},
		"user and password":  {data: map[string]string{"address": "http://p:1", "username": "u@x", "password": "s3cret/?"}, want: "http://u%40x:s3cret%2F%3F@p:1"},
		"no address":         {data: map[string]string{"username": "u"}, says: "no key address"},
		"no host":            {data: map[string]string{"address": "http://"}, says: "no URL with a host"},
		"no scheme":          {data: map[string]string{"address": "proxy:3128"}, says: "no URL with a host"},
		"socks":              {data: map[string]string{"address": "socks5://s3cret:1"}, says: "neither http nor https"},
		"user in address":    {data: map[string]string{"address": "http://u:s3cret@p:1"}, says: "holds a user or password"},
		"path":               {data: map[string]string{"address": "http://p:1/s3cret"}, says: "path, query or fragment"},
		"query":              {data: map[string]string{"address": "http://p:1?s3cret"}, says: "path, query or fragment"},
		"control characters": {data: map[string]string{"address": "http://p:1\ns3cret"}, says: "no URL with a host"},
		"password alone":     {data: map[string]string{"address": "http://p:1", "password": "s3cret"}, says: "no username"},
	} {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "proxy"}, Data: map[string][]byte{}}
			for key, value := range c.data {
				secret.Data[key] = []byte(value)
			}
			got, err := readProxy("spec.proxySecretRef", secret)
			if c.says != "" {
				if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "s3cret") {
					t.Errorf("error %v, want %q", err, c.says)
				}
				return
			}
			if err != nil || got.String() != c.want {
				t.Errorf("%v, %v, want %s", got, err, c.want)
			}
		})
	}
}

func TestReadCertificates(t *testing.T) {
	certificate, key := sourcetest.Pair(t)
	_, otherKey := sourcetest.Pair(t)
	for name, c := range map[string]struct {
		data map[string]string
		says string
	}{
		"authority":           {data: map[string]string{"ca.crt": certificate}},
		"client":              {data: map[string]string{"tls.crt": certificate, "tls.key": key}},
		"both":                {data: map[string]string{"ca.crt": certificate, "tls.crt": certificate, "tls.key": key}},
		"nothing":             {says: "holds no certificate"},
		"authority is none":   {data: map[string]string{"ca.crt": key}, says: "ca.crt holds no certificate"},
		"half a pair":         {data: map[string]string{"tls.key": key}, says: "one half"},
		"key of another pair": {data: map[string]string{"tls.crt": certificate, "tls.key": otherKey}, says: "no pair"},
	} {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "tls"}, Data: map[string][]byte{}}
			for k, v := range c.data {
				secret.Data[k] = []byte(v)
			}
			_, err := readCertificates("spec.certSecretRef", secret)
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("error %v, want %q", err, c.says)
			}
		})
	}
}
