"""TokenReviews and SubjectAccessReviews."""

TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
SUBJECT_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
SELF_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


async def test_an_unknown_token_is_not_authenticated(api):
    review = await api.ask("POST", TOKEN_REVIEWS, {"spec": {"token": "nonsense"}})

    assert (review["kind"], review["apiVersion"]) == ("TokenReview", "authentication.k8s.io/v1")
    assert review["status"]["user"] == {}
    assert "authenticated" not in review["status"]
    assert "invalid bearer token" in review["status"]["error"]


async def test_a_token_of_a_service_account_authenticates_it(api):
    path = f"{api('serviceaccounts').path}/default/token"
    request = await api.ask("POST", path, {"spec": {"expirationSeconds": 3600}})
    token = request["status"]["token"]

    review = await api.ask("POST", TOKEN_REVIEWS, {"spec": {"token": token}})

    assert review["status"]["authenticated"] is True
    user = review["status"]["user"]
    assert user["username"] == f"system:serviceaccount:{api.namespace}:default"
    assert f"system:serviceaccounts:{api.namespace}" in user["groups"]
    assert "system:serviceaccounts" in user["groups"]


async def test_an_unknown_user_may_do_nothing(api):
    question = {"user": "stranger", "nonResourceAttributes": {"path": "/metrics", "verb": "get"}}

    review = await api.ask("POST", SUBJECT_REVIEWS, {"spec": question})

    assert review["kind"] == "SubjectAccessReview"
    assert review["status"]["allowed"] is False


async def test_a_cluster_role_grants_a_path(api):
    rbac = "rbac.authorization.k8s.io/v1"
    name = api.named("metrics")
    role = {"metadata": {"name": name}, "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]}
    await api.cluster("clusterroles", rbac).create(role)
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}
    await api.cluster("clusterrolebindings", rbac).create(
        {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
    )

    async def allowed(path, verb):
        question = {"user": name, "nonResourceAttributes": {"path": path, "verb": verb}}
        return (await api.ask("POST", SUBJECT_REVIEWS, {"spec": question}))["status"]["allowed"]

    # The authorizer learns of the binding through its own watch.
    await api.eventually(lambda: allowed("/metrics", "get"))
    assert not await allowed("/metrics", "post")
    assert not await allowed("/debug", "get")
    await api.cluster("clusterrolebindings", rbac).delete(name)
    await api.cluster("clusterroles", rbac).delete(name)


async def test_the_administrator_may_do_everything(api):
    attributes = {"namespace": api.namespace, "verb": "create", "resource": "pods", "subresource": "binding"}

    review = await api.ask("POST", SELF_REVIEWS, {"spec": {"resourceAttributes": attributes}})

    assert review["kind"] == "SelfSubjectAccessReview"
    assert review["status"]["allowed"] is True
