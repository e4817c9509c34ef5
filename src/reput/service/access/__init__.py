"""Access control: users and policies (ACL 2.0), accounts of plain_acl.yml (ACL 1.0), and the needs of a request."""
