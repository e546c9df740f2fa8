package e2e

import (
	"archive/tar"
	"testing"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
)

// TestUnsafeArchives publishes archives with unsafe content, as somebody with write access to a
// tenant's repository could. The controller must refuse these archives.
func TestUnsafeArchives(t *testing.T) {
	beside(t)
	tn := newTenant(t, "archives")
	fine := layer(t, file("app.yaml", noise(t, 10<<10)))
	link := func(kind byte, name, to string) entry {
		return entry{Header: tar.Header{Name: name, Typeflag: kind, Linkname: to, Mode: 0o777}}
	}
	device := func(kind byte) entry {
		return entry{Header: tar.Header{Name: "device", Typeflag: kind, Devmajor: 1, Devminor: 3, Mode: 0o666}}
	}
	tests := []struct {
		name    string
		content []byte
		words   []string
	}{
		{"parent", layer(t, file("../evil", "x")), []string{`"../evil"`}},
		{"deep-parent", layer(t, file("a/b/../../../evil", "x")), []string{`evil"`}},
		{"absolute", layer(t, file("/etc/passwd", "x")), []string{`"/etc/passwd"`}},
		{"absolute-link", layer(t, link(tar.TypeSymlink, "link", "/etc/passwd")), []string{`"link"`}},
		{"escaping-link", layer(t, link(tar.TypeSymlink, "dir/link", "../../outside")), []string{`"dir/link"`}},
		{"through-a-link", layer(t, link(tar.TypeSymlink, "dir", "elsewhere"), file("dir/evil", "x")), []string{`dir`}},
		{"hard-link", layer(t, link(tar.TypeLink, "hard", "/etc/shadow")), []string{`"hard"`}},
		{"char-device", layer(t, device(tar.TypeChar)), []string{`"device"`}},
		{"block-device", layer(t, device(tar.TypeBlock)), []string{`"device"`}},
		{"fifo", layer(t, device(tar.TypeFifo)), []string{`"device"`}},
		{"twice", layer(t, file("a", "1"), file("a", "2")), []string{`"a"`}},
		{"cut", fine[:len(fine)/2], nil},
		{"followed", append(append([]byte{}, fine...), "something else"...), nil},
		{"no-archive", []byte("this is no archive"), nil},
	}
	pulls := make([]*v1alpha1.OCIRepository, len(tests))
	for i, tt := range tests {
		tn.push(t, tt.name, tt.content)
		pulls[i] = tn.object(tt.name)
		pulls[i].Spec.Ref.Tag = tt.name
		create(t, pulls[i])
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			await(t, pulls[i], "the refusal", failing("ArchiveRefused", append(tt.words, "archive refused: ", ";")...))
			if a := pulls[i].Status.Artifact; a != nil {
				t.Errorf("it has the artifact %+v", a)
			}
		})
	}
	t.Run("a good one beside them", func(t *testing.T) {
		manifest := tn.push(t, "good", fine)
		o := tn.object("good")
		o.Spec.Ref.Tag = "good"
		create(t, o)
		await(t, o, "the artifact", revision(manifest))
		wantServed(t, o)
	})
}
