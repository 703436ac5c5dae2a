// Command decrypts encrypts Secrets with SOPS, and decrypts them with the decryptor of Flux's kustomize-controller.
//
// Here: `decrypts make FOLDER COUNT` writes an age identity and so many encrypted Secrets; `decrypts measure FOLDER
// ROUNDS` decrypts all of them as a reconciliation does after the build, and prints how long that took each time, and the
// plain objects. Elsewhere: windlass's side (`cargo xtask bench trust`). The decryptor is internal to its module, so this is
// built in a copy of it.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/getsops/sops/v3"
	"github.com/getsops/sops/v3/aes"
	sopsage "github.com/getsops/sops/v3/age"
	"github.com/getsops/sops/v3/cmd/sops/common"
	"github.com/getsops/sops/v3/cmd/sops/formats"
	"github.com/getsops/sops/v3/config"
	"github.com/getsops/sops/v3/version"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/provider"
	"sigs.k8s.io/kustomize/api/resource"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"github.com/fluxcd/pkg/apis/meta"

	"github.com/fluxcd/kustomize-controller/internal/decryptor"
)

// identity is the file with the private key; the name makes it an age identity for Flux.
const identity = "keys.agekey"

func main() {
	if len(os.Args) != 4 {
		fail(fmt.Errorf("usage: decrypts make FOLDER COUNT | decrypts measure FOLDER ROUNDS"))
	}
	number, err := strconv.Atoi(os.Args[3])
	if err != nil {
		fail(err)
	}
	switch os.Args[1] {
	case "make":
		err = makeAll(os.Args[2], number)
	case "measure":
		err = measure(os.Args[2], number)
	default:
		err = fmt.Errorf("unknown command %q", os.Args[1])
	}
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// makeAll writes the identity and the encrypted Secrets.
func makeAll(folder string, count int) error {
	key, err := age.GenerateX25519Identity()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, identity), []byte(key.String()+"\n"), 0o600); err != nil {
		return err
	}
	for number := range count {
		encrypted, err := encrypt(key.Recipient().String(), plain(number))
		if err != nil {
			return err
		}
		path := filepath.Join(folder, fmt.Sprintf("secret-%04d.yaml", number))
		if err := os.WriteFile(path, encrypted, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// plain is a Secret as applications have it: a password, an address with it, a file of settings and a private key.
func plain(number int) []byte {
	line := strings.Repeat("c2VjcmV0", 8)
	var text strings.Builder
	fmt.Fprintf(&text, "apiVersion: v1\nkind: Secret\nmetadata:\n  name: app-%04d\n  namespace: apps\n", number)
	fmt.Fprintf(&text, "stringData:\n  password: correct-horse-%d\n", number)
	fmt.Fprintf(&text, "  url: postgres://app-%d:correct-horse-%d@database.example.com:5432/app?sslmode=verify-full\n", number, number)
	text.WriteString("  settings.ini: |\n")
	for at := range 20 {
		fmt.Fprintf(&text, "    setting-%d = value-%d-of-%d\n", at, at, number)
	}
	text.WriteString("  tls.key: |\n    -----BEGIN PRIVATE KEY-----\n")
	for range 26 {
		fmt.Fprintf(&text, "    %s\n", line)
	}
	text.WriteString("    -----END PRIVATE KEY-----\n")
	return []byte(text.String())
}

// encrypt does what `sops encrypt --age RECIPIENT --encrypted-regex '^(data|stringData)$'` does.
func encrypt(recipient string, data []byte) ([]byte, error) {
	master, err := sopsage.MasterKeyFromRecipient(recipient)
	if err != nil {
		return nil, err
	}
	store := common.StoreForFormat(formats.Yaml, config.NewStoresConfig())
	branches, err := store.LoadPlainFile(data)
	if err != nil {
		return nil, err
	}
	tree := sops.Tree{Branches: branches, Metadata: sops.Metadata{
		KeyGroups:      []sops.KeyGroup{{master}},
		EncryptedRegex: "^(data|stringData)$",
		Version:        version.Version,
	}}
	key, errs := tree.GenerateDataKey()
	if len(errs) > 0 {
		return nil, fmt.Errorf("no data key: %v", errs)
	}
	cipher := aes.NewCipher()
	mac, err := tree.Encrypt(key, cipher)
	if err != nil {
		return nil, err
	}
	tree.Metadata.LastModified = time.Now().UTC()
	tree.Metadata.MessageAuthenticationCode, err = cipher.Encrypt(mac, key, tree.Metadata.LastModified.Format(time.RFC3339))
	if err != nil {
		return nil, err
	}
	return store.EmitEncryptedFile(tree)
}

// secrets answers every request with the Secret that has the identity.
type secrets struct {
	client.Client
	identity []byte
}

func (s secrets) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	secret, ok := object.(*corev1.Secret)
	if !ok {
		return fmt.Errorf("%T was asked for", object)
	}
	secret.Data = map[string][]byte{identity: s.identity}
	return nil
}

// measure prints the seconds of each round, and the objects that it made.
func measure(folder string, rounds int) error {
	key, err := os.ReadFile(filepath.Join(folder, identity))
	if err != nil {
		return err
	}
	encrypted, err := load(folder)
	if err != nil {
		return err
	}
	kustomization := &kustomizev1.Kustomization{
		ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "apps"},
		Spec: kustomizev1.KustomizationSpec{Decryption: &kustomizev1.Decryption{
			Provider:  decryptor.DecryptionProviderSOPS,
			SecretRef: &meta.LocalObjectReference{Name: "keys"},
		}},
	}
	seconds := make([]float64, 0, rounds)
	var last []*resource.Resource
	for range rounds {
		last = last[:0]
		for _, object := range encrypted {
			last = append(last, object.DeepCopy())
		}
		begun := time.Now()
		if err := decrypt(secrets{identity: key}, kustomization, folder, last); err != nil {
			return err
		}
		seconds = append(seconds, time.Since(begun).Seconds())
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"seconds": seconds, "objects": last})
}

// load reads the Secrets in the order of their files.
func load(folder string) ([]*resource.Resource, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return nil, err
	}
	factory := provider.NewDefaultDepProvider().GetResourceFactory()
	var all []*resource.Resource
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		object, err := factory.FromBytes(data)
		if err != nil {
			return nil, err
		}
		all = append(all, object)
	}
	return all, nil
}

// decrypt is what a reconciliation does with the objects of its build.
func decrypt(secrets secrets, kustomization *kustomizev1.Kustomization, root string, objects []*resource.Resource) error {
	decryptor, cleanup, err := decryptor.New(secrets, kustomization, decryptor.WithRoot(root))
	if err != nil {
		return err
	}
	defer cleanup()
	if err := decryptor.ImportKeys(context.Background()); err != nil {
		return err
	}
	for _, object := range objects {
		if _, err := decryptor.DecryptResource(object); err != nil {
			return err
		}
	}
	return nil
}
